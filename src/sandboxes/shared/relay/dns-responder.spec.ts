import { decode, encode } from 'dns-packet';
import { describe, expect, it, jest } from '@jest/globals';
import { answerQuery } from './dns-responder.js';
import type { DecodedPacket, OptAnswer, Packet, RecordType } from 'dns-packet';
import type { NameVerdict } from './dns-responder.js';

const judge = (name: string): NameVerdict =>
  name.toLowerCase() === 'a.example' ? { address: '127.64.0.1' } : { refused: 'not allowed' };

/** The types leave out the code by name that `decode` adds. */
type Decoded = DecodedPacket & { rcode: string };

function ask(packet: Packet): Decoded {
  const reply = answerQuery(
    encode({ type: 'query', id: 4711, flags: 256, ...packet }),
    judge,
  )?.reply;
  return decode(reply as Buffer) as Decoded;
}
const question = (name: string, type: RecordType) => ({ questions: [{ name, type }] });
const rcode = (bytes: Buffer | undefined): number | undefined =>
  bytes === undefined ? undefined : bytes.readUInt8(3) & 0xf;

describe('answerQuery', () => {
  it('gives an allowed name its address', () => {
    const reply = ask(question('A.example', 'A'));
    expect(reply).toMatchObject({ id: 4711, type: 'response', rcode: 'NOERROR', flag_rd: true });
    expect(reply.questions).toMatchObject([{ name: 'A.example', type: 'A' }]);
    expect(reply.answers).toMatchObject([{ name: 'A.example', data: '127.64.0.1', ttl: 60 }]);
  });

  it.each<RecordType>(['AAAA', 'TXT', 'MX', 'NS', 'SRV', 'CNAME', 'UNKNOWN_65' as RecordType])(
    'has no %s record, for an allowed name without an error',
    (type) => {
      expect(ask(question('a.example', type))).toMatchObject({ rcode: 'NOERROR', answers: [] });
      expect(ask(question('b.example', type))).toMatchObject({ rcode: 'REFUSED', answers: [] });
    },
  );

  it('treats service labels as part of the name that they precede', () => {
    expect(ask(question('_http._tcp.a.example', 'SRV'))).toMatchObject({
      rcode: 'NOERROR',
      answers: [],
    });
    expect(ask(question('_http._tcp.a.example', 'A'))).toMatchObject({
      rcode: 'NOERROR',
      answers: [],
    });
    expect(ask(question('_http._tcp.b.example', 'SRV')).rcode).toBe('REFUSED');
  });

  it('says which name was refused', () => {
    const query = encode({
      type: 'query',
      id: 1,
      questions: [{ name: 'data.evil.example', type: 'TXT' }],
    });
    expect(answerQuery(query, judge)?.refused).toEqual({
      name: 'data.evil.example',
      why: 'not allowed',
    });
  });

  it('answers EDNS with EDNS', () => {
    const edns: OptAnswer = {
      type: 'OPT',
      name: '.',
      udpPayloadSize: 4096,
      extendedRcode: 0,
      ednsVersion: 0,
      flags: 0,
      flag_do: false,
      options: [],
    };
    const reply = ask({ ...question('a.example', 'A'), additionals: [edns] });
    expect(reply.additionals).toMatchObject([{ type: 'OPT' }]);
    expect(ask(question('a.example', 'A')).additionals).toEqual([]);
  });

  it('refuses other classes', () => {
    expect(ask({ questions: [{ name: 'a.example', type: 'TXT', class: 'CH' }] }).rcode).toBe(
      'REFUSED',
    );
  });

  it.each<[string, Buffer, number | undefined]>([
    ['nothing', Buffer.alloc(0), undefined],
    ['less than a header', Buffer.alloc(11), undefined],
    ['a response', encode({ type: 'response', id: 1, questions: [] }), undefined],
    ['no question', encode({ type: 'query', id: 1, questions: [] }), 1],
    [
      'two questions',
      encode({
        type: 'query',
        id: 1,
        questions: [
          { name: 'a.example', type: 'A' },
          { name: 'b.example', type: 'A' },
        ],
      }),
      1,
    ],
    [
      'a question cut short',
      encode({ type: 'query', id: 1, questions: [{ name: 'a.example', type: 'A' }] }).subarray(
        0,
        16,
      ),
      1,
    ],
    ['a compression loop', Buffer.from('000100000001000000000000c00c00010001', 'hex'), 1],
    ['another opcode', Buffer.from('000128000001000000000000', 'hex'), 4],
  ])('survives %s', (_, query, expected) => {
    const judgeNothing = jest.fn(judge);
    expect(rcode(answerQuery(query, judgeNothing)?.reply)).toBe(expected);
    expect(judgeNothing).not.toHaveBeenCalled();
  });

  it('never throws on noise', () => {
    let seed = 1;
    const random = () => (seed = (seed * 48_271) % 2_147_483_647) & 0xff;
    const base = encode({ type: 'query', id: 7, questions: [{ name: 'a.example', type: 'A' }] });
    for (let round = 0; round < 5000; round += 1) {
      const noise = Buffer.from(base);
      for (let flips = 0; flips < 3; flips += 1)
        noise[4 + (random() % (noise.length - 4))] = random();
      const reply = answerQuery(noise, judge);
      expect(reply === undefined || reply.reply.length >= 12).toBe(true);
    }
  });
});
