import { describe, expect, it } from '@jest/globals';
import {
  decodeFrame,
  encodeFrameHeader,
  FRAME_HEADER_BYTES,
  MAX_FRAME_PAYLOAD,
} from './spool-format.js';

const frame = (payload: Buffer, stream: 'stdout' | 'stderr' = 'stdout'): Buffer =>
  Buffer.concat([encodeFrameHeader(stream, payload, 1_700_000_000_000_001), payload]);

describe('the spool format', () => {
  it('gives back what was put in', () => {
    const payload = Buffer.from([0, 255, 10, 0xc3]);
    const spool = Buffer.concat([frame(Buffer.from('first')), frame(payload, 'stderr')]);
    const first = decodeFrame(spool, 0);
    expect(first).toEqual({
      stream: 'stdout',
      payload: Buffer.from('first'),
      bytes: FRAME_HEADER_BYTES + 5,
    });
    expect(decodeFrame(spool, FRAME_HEADER_BYTES + 5)).toMatchObject({ stream: 'stderr', payload });
  });

  it('keeps the time of the read in microseconds', () => {
    expect(frame(Buffer.from('x')).readBigUInt64LE(8)).toBe(1_700_000_000_000_001n);
  });

  it('waits for every byte of a torn frame', () => {
    const whole = frame(Buffer.from('payload'));
    for (let length = 0; length < whole.length; length += 1) {
      expect(decodeFrame(whole.subarray(0, length), 0)).toBe('incomplete');
    }
  });

  it('notices any changed byte', () => {
    const whole = frame(Buffer.from('payload'));
    for (let i = 0; i < whole.length; i += 1) {
      const spoiled = Buffer.from(whole);
      spoiled[i] = (spoiled[i] ?? 0) ^ 0x01;
      expect(['corrupt', 'incomplete']).toContain(decodeFrame(spoiled, 0));
    }
  });

  it('believes no length beyond the largest frame', () => {
    const forged = Buffer.alloc(FRAME_HEADER_BYTES + 10);
    frame(Buffer.from('x')).copy(forged, 0, 0, FRAME_HEADER_BYTES);
    for (const length of [0, MAX_FRAME_PAYLOAD + 1, 0xffffffff]) {
      forged.writeUInt32LE(length, 4);
      expect(decodeFrame(forged, 0)).toBe('corrupt');
    }
  });
});
