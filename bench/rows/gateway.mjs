import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startHelper } from '../lib/rpc.mjs';

const MODEL = fileURLToPath(new URL('../lib/model-server.mjs', import.meta.url));
const CLIENTS = fileURLToPath(new URL('../lib/model-clients.mjs', import.meta.url));

export const title = 'Gateway: 50 model responses at a time, each a stream of 20 events in 1 s';
export const metrics = {
  p50: 'time to the first byte, p50 ms',
  p99: 'time to the first byte, p99 ms',
  added50: 'added by the gateway, p50 ms',
  added99: 'added by the gateway, p99 ms',
};
export const goals = [
  { label: 'time that the gateway adds, p50 ms', metric: 'added50', atMost: 3 },
  { label: 'time that the gateway adds, p99 ms', metric: 'added99', atMost: 10 },
];

export async function open({ tiny }) {
  const { GatewayKeeper } = await import('../../dist/src/gateway/gateway-keeper.js');
  const { GrantSeal, KEY_PREFIXES } = await import('../../dist/src/gateway/grants.js');
  const model = await startHelper(MODEL);
  const clients = await startHelper(CLIENTS);
  const port = await model.call('start', { events: tiny ? 2 : 20, everyMs: tiny ? 5 : 50 });
  const folder = await mkdtemp(join(tmpdir(), 'bench-gateway-'));
  const grantKeys = [randomBytes(32).toString('base64url')];
  const trusted = [`127.0.0.1:${port}`];
  const keeper = new GatewayKeeper({
    folder,
    config: { grantKeys, trusted, idleMs: 200, user: null },
  });
  await keeper.ensure();
  const sandbox = randomUUID();
  const grant = new GrantSeal(grantKeys).seal({
    kind: 'model',
    api: 'anthropic',
    url: `http://127.0.0.1:${port}`,
    key: 'the key',
    sandbox,
    session: randomUUID(),
    turn: randomUUID(),
    user: randomUUID(),
    expires: Date.now() + 3_600_000,
  });
  const load = {
    clients: tiny ? 2 : 50,
    seconds: tiny ? 0.2 : 10,
    key: KEY_PREFIXES.anthropic + grant,
  };
  const direct = () => clients.call('run', { ...load, port, path: '/v1/messages' });
  const through = () =>
    clients.call('run', {
      ...load,
      socket: join(folder, 'socket'),
      sandbox,
      path: '/anthropic/v1/messages',
    });
  return {
    contenders: {
      service: async () => {
        const bare = await direct();
        const { p50, p99 } = await through();
        return { p50, p99, added50: p50 - bare.p50, added99: p99 - bare.p99 };
      },
      direct,
    },
    close: async () => {
      keeper.close();
      await clients.stop();
      await model.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
