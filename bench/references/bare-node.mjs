import { fileURLToPath } from 'node:url';
import { startHelper } from '../lib/rpc.mjs';

const SERVER = fileURLToPath(new URL('./bare-node-server.mjs', import.meta.url));

export const missing = () => undefined;

/** A bare Node server that keeps the same bytes in memory and sends them. */
export async function start() {
  const helper = await startHelper(SERVER);
  const port = await helper.call('start');
  return {
    port,
    ids: true,
    pids: () => [helper.pid],
    publish: (channel) => `/pub/${channel}`,
    stream: (channel) => ({ port, path: `/sub/${channel}` }),
    slabs: (bytes) => helper.call('slabs', { base64: bytes.toString('base64') }),
    slabStream: () => ({ port, path: '/slabs' }),
    stop: () => helper.stop(),
  };
}
