import { expect, it } from '@jest/globals';
import { encodeFrame, FRAME_TYPES, FrameDecoder, MAX_PAYLOAD_BYTES } from './frames.js';

/** The bytes of a file as `confine --files` sends them. */
function content(bytes: Buffer): Buffer {
  const header = Buffer.alloc(9);
  header.writeUInt32LE(bytes.length, 0);
  header.writeUInt8(FRAME_TYPES.content, 4);
  return Buffer.concat([header, bytes]);
}

it.each([1, 2, 8, 9, 10, 13, 1000, 70_000, 1_000_000])(
  'assembles frames from pieces of %i bytes, and passes content on as it arrives',
  (size) => {
    const file = Buffer.alloc(200_000, 'abcdefg');
    const input = Buffer.alloc(MAX_PAYLOAD_BYTES, 'x');
    const sent = Buffer.concat([
      encodeFrame('hello', 0, { version: 1 }),
      content(file),
      content(Buffer.alloc(0)),
      encodeFrame('input', 7, input),
      encodeFrame('end', 0),
    ]);
    const decoder = new FrameDecoder({ takesContent: true });
    const frames = [];
    for (let at = 0; at < sent.length; at += size) {
      for (const frame of decoder.push(sent.subarray(at, at + size))) {
        if (frame.type === 'content') expect(frame.payload.length).toBeLessThanOrEqual(size);
        frames.push(frame);
      }
    }
    const bytes = frames.filter(({ type }) => type === 'content').map(({ payload }) => payload);
    expect(Buffer.concat(bytes).equals(file)).toBe(true);
    const others = frames.filter(({ type }) => type !== 'content');
    expect(others.map(({ type, call }) => [type, call])).toEqual([
      ['hello', 0],
      ['input', 7],
      ['end', 0],
    ]);
    expect(others[1]?.payload.equals(input)).toBe(true);
  },
);

it('knows when bytes of a file are missing', () => {
  const decoder = new FrameDecoder({ takesContent: true });
  const sent = content(Buffer.from('0123'));
  decoder.push(sent.subarray(0, 11));
  expect(decoder.isWithinContent).toBe(true);
  decoder.push(sent.subarray(11));
  expect(decoder.isWithinContent).toBe(false);
});

it('refuses what is too long or unknown, and content where none is expected', () => {
  const long = Buffer.alloc(9);
  long.writeUInt32LE(MAX_PAYLOAD_BYTES + 1, 0);
  long.writeUInt8(FRAME_TYPES.item, 4);
  const unknown = Buffer.alloc(9, 200);
  for (const wrong of [long, unknown, content(Buffer.from('x'))]) {
    expect(() => new FrameDecoder().push(wrong)).toThrow('another protocol');
  }
});
