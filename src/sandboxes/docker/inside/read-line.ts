import type { Socket } from 'node:net';
import { MAX_LINE_BYTES } from './egress-protocol.js';

/**
 * Reads one line off a connection and gives what came behind it back to it. Leaves the connection paused.
 * @throws Error if it ends before, is silent for too long or sends too much
 */
export function readLine(socket: Socket, timeoutMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    let seen = Buffer.alloc(0);
    const settle = (): void => {
      clearTimeout(timer);
      socket.pause();
      socket.off('data', onData).off('end', onEnd).off('error', fail);
    };
    const fail = (error: Error): void => {
      settle();
      reject(error);
    };
    const onEnd = (): void => fail(new Error('it ended in mid-line'));
    const onData = (data: Buffer): void => {
      seen = Buffer.concat([seen, data]);
      const end = seen.indexOf('\n');
      if (end < 0) {
        if (seen.length > MAX_LINE_BYTES) fail(new Error('the line is too long'));
        return;
      }
      settle();
      if (end + 1 < seen.length) socket.unshift(seen.subarray(end + 1));
      resolve(seen.toString('utf8', 0, end));
    };
    const timer = setTimeout(() => fail(new Error('no line in time')), timeoutMs);
    socket.on('data', onData).on('end', onEnd).on('error', fail);
    socket.resume();
  });
}
