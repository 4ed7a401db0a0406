import { createServer, connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/** A free port on the loopback interface. */
export function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

export async function untilListening(port, limitMs = 15_000) {
  const end = performance.now() + limitMs;
  for (;;) {
    const open = await new Promise((resolve) => {
      const socket = connect({ port, host: '127.0.0.1' }, () => {
        socket.destroy();
        resolve(true);
      });
      socket.once('error', () => resolve(false));
    });
    if (open) return;
    if (performance.now() > end) throw new Error(`nothing listens on port ${port}`);
    await delay(20);
  }
}
