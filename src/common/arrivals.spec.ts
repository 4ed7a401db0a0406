import { PassThrough } from 'node:stream';
import { expect, it } from '@jest/globals';
import { arrivals } from './arrivals.js';

const PIECE = 64 * 1024;

it('yields the pieces of a stream as they are, and ends with it', async () => {
  const stream = new PassThrough({ highWaterMark: 1000 });
  const pieces = ['one', 'two', 'three'].map((text) => Buffer.from(text));
  for (const piece of pieces) stream.write(piece);
  stream.end();
  const seen: Buffer[] = [];
  for await (const piece of arrivals(stream)) seen.push(piece);
  expect(seen).toEqual(pieces);
  expect(await arrivals(stream).next()).toEqual({ done: true, value: undefined });
});

it('takes no more than it must while its reader is slow', async () => {
  const stream = new PassThrough({ highWaterMark: PIECE });
  const reading = arrivals(stream);
  const first = reading.next();
  let written = 0;
  const write = (): void => {
    while (written < 100) {
      written += 1;
      if (!stream.write(Buffer.alloc(PIECE))) break;
    }
    if (written === 100) stream.end();
  };
  stream.on('drain', write);
  write();
  expect((await first).value).toHaveLength(PIECE);
  for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  expect(written).toBeLessThan(12);
  let bytes = PIECE;
  for await (const piece of reading) bytes += piece.length;
  expect([bytes, written]).toEqual([100 * PIECE, 100]);
});

it('throws the error of the stream, and ends if it is destroyed without one', async () => {
  const broken = new PassThrough();
  const reading = arrivals(broken);
  const next = reading.next();
  broken.destroy(new Error('broken'));
  await expect(next).rejects.toThrow('broken');

  const gone = new PassThrough();
  const rest = arrivals(gone).next();
  gone.destroy();
  expect((await rest).done).toBe(true);
});
