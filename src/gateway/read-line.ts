import type { Socket } from 'node:net';
import { MAX_LINE_BYTES } from './protocol.js';

/** The peer sent no line in time. */
export class LineTimeout extends Error {}

/**
 * Reads one line from a connection and puts the following bytes back. Leaves the connection paused.
 * @throws Error if the connection ends first, is silent for too long or sends too much
 */
export function readLine(
  socket: Socket,
  timeoutMs: number,
  mostBytes = MAX_LINE_BYTES,
): Promise<string> {
  return new Promise((resolve, reject) => {
    let seen = Buffer.alloc(0);
    const settle = (): void => {
      clearTimeout(timer);
      socket.pause();
      socket.off('data', onData).off('end', onEnd).off('close', onEnd).off('error', fail);
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
        if (seen.length > mostBytes) fail(new Error('the line is too long'));
        return;
      }
      settle();
      if (end + 1 < seen.length) socket.unshift(seen.subarray(end + 1));
      resolve(seen.toString('utf8', 0, end));
    };
    const timer = setTimeout(() => fail(new LineTimeout('no line in time')), timeoutMs);
    socket.on('data', onData).on('end', onEnd).on('close', onEnd).on('error', fail);
    socket.resume();
  });
}
