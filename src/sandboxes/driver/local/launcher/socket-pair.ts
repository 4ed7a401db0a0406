import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * Two connected sockets from which this process reads nothing, so that both can be passed on. Node cannot make a pair
 * without a name; only this process's user can reach the name, and only until both are connected.
 */
export async function socketPair(): Promise<{ near: Socket; far: Socket }> {
  const folder = await mkdtemp(join(tmpdir(), 'sockets-'));
  const server = createServer({ pauseOnConnect: true });
  const near = new Socket();
  near.pause();
  try {
    server.listen(join(folder, 'socket'));
    await once(server, 'listening');
    const accepted = once(server, 'connection');
    near.connect(join(folder, 'socket'));
    const [[far]] = await Promise.all([accepted as Promise<[Socket]>, once(near, 'connect')]);
    return { near, far };
  } catch (error) {
    near.destroy();
    throw error;
  } finally {
    server.close();
    await rm(folder, { recursive: true, force: true });
  }
}
