import type { Readable } from 'node:stream';

/** How much may wait for a slow reader. Bytes. */
const WAITING_BYTES = 256 * 1024;

/**
 * What a stream receives, as the pieces that it receives. A stream's own iterator copies all pieces that wait into one.
 * The stream is paused while the reader is slow, and left as it is when the reader stops.
 * @throws the stream's error. One that is destroyed only ends, so the caller must know what it waits for
 */
export async function* arrivals(stream: Readable): AsyncGenerator<Buffer, void, undefined> {
  const waiting: Buffer[] = [];
  let bytes = 0;
  let isPaused = false;
  let hasEnded = stream.destroyed || stream.readableEnded;
  let failure: Error | undefined;
  let wake = (): void => undefined;
  const take = (data: Buffer): void => {
    waiting.push(data);
    bytes += data.length;
    if (bytes >= WAITING_BYTES) {
      isPaused = true;
      stream.pause();
    }
    wake();
  };
  const end = (): void => {
    hasEnded = true;
    wake();
  };
  stream.on('data', take).on('end', end).on('close', end);
  // Stays: an error that comes after the last read must not end the process.
  stream.on('error', (error) => {
    failure = error;
    wake();
  });
  stream.resume();
  try {
    for (;;) {
      const next = waiting.shift();
      if (next !== undefined) {
        bytes -= next.length;
        yield next;
      } else if (failure !== undefined) throw failure;
      else if (hasEnded) return;
      else {
        if (isPaused) stream.resume();
        isPaused = false;
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    }
  } finally {
    stream.off('data', take).off('end', end).off('close', end);
  }
}
