import {
  decode,
  encode,
  type DecodedPacket,
  type OptAnswer,
  type Packet,
  type RecordType,
} from 'dns-packet';
import { describe, expect, it, jest } from '@jest/globals';
import { answerQuery, type NameVerdict } from './dns-responder.js';

const judge = (name: string): NameVerdict =>
  ({
    'a.example': { address: '127.64.0.1' },
    'missing.example': { missing: true } as const,
    'dead.example': { failed: true } as const,
    'busy.example': { failed: true, why: 'too many' } as const,
  })[name.toLowerCase()] ?? { refused: 'not allowed' };

/** The types leave out the code by name that `decode` adds. */
type Decoded = DecodedPacket & { rcode: string };

async function ask(packet: Packet): Promise<Decoded> {
  const answered = await answerQuery(
    encode({ type: 'query', id: 4711, flags: 256, ...packet }),
    judge,
  );
  return decode(answered?.reply as Buffer) as Decoded;
}
const question = (name: string, type: RecordType) => ({ questions: [{ name, type }] });
const rcode = (bytes: Buffer | undefined): number | undefined =>
  bytes === undefined ? undefined : bytes.readUInt8(3) & 0xf;

describe('answerQuery', () => {
  it('gives an allowed name its address', async () => {
    const reply = await ask(question('A.example', 'A'));
    expect(reply).toMatchObject({ id: 4711, type: 'response', rcode: 'NOERROR', flag_rd: true });
    expect(reply.questions).toMatchObject([{ name: 'A.example', type: 'A' }]);
    expect(reply.answers).toMatchObject([{ name: 'A.example', data: '127.64.0.1', ttl: 60 }]);
  });

  it.each<RecordType>(['AAAA', 'TXT', 'MX', 'NS', 'SRV', 'CNAME', 'UNKNOWN_65' as RecordType])(
    'has no %s record, for an allowed name without an error',
    async (type) => {
      expect(await ask(question('a.example', type))).toMatchObject({
        rcode: 'NOERROR',
        answers: [],
      });
      expect(await ask(question('b.example', type))).toMatchObject({
        rcode: 'REFUSED',
        answers: [],
      });
    },
  );

  it('treats service labels as part of the name that they precede', async () => {
    expect(await ask(question('_http._tcp.a.example', 'SRV'))).toMatchObject({
      rcode: 'NOERROR',
      answers: [],
    });
    expect(await ask(question('_http._tcp.a.example', 'A'))).toMatchObject({
      rcode: 'NOERROR',
      answers: [],
    });
    expect((await ask(question('_http._tcp.b.example', 'SRV'))).rcode).toBe('REFUSED');
  });

  it('says that a name does not exist, or that nobody could be asked', async () => {
    expect(await ask(question('missing.example', 'A'))).toMatchObject({ rcode: 'NXDOMAIN' });
    expect(await ask(question('missing.example', 'TXT'))).toMatchObject({ rcode: 'NXDOMAIN' });
    expect(await ask(question('dead.example', 'A'))).toMatchObject({ rcode: 'SERVFAIL' });
    const query = encode({
      type: 'query',
      id: 1,
      questions: [{ name: 'busy.example', type: 'A' }],
    });
    const answered = await answerQuery(query, judge);
    expect(decode(answered?.reply as Buffer)).toMatchObject({ rcode: 'SERVFAIL' });
    expect(answered?.refused).toEqual({ name: 'busy.example', why: 'too many' });
  });

  it('says which name was refused', async () => {
    const query = encode({
      type: 'query',
      id: 1,
      questions: [{ name: 'data.evil.example', type: 'TXT' }],
    });
    expect((await answerQuery(query, judge))?.refused).toEqual({
      name: 'data.evil.example',
      why: 'not allowed',
    });
  });

  it('answers EDNS with EDNS', async () => {
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
    const reply = await ask({ ...question('a.example', 'A'), additionals: [edns] });
    expect(reply.additionals).toMatchObject([{ type: 'OPT' }]);
    expect((await ask(question('a.example', 'A'))).additionals).toEqual([]);
  });

  it('refuses other classes', async () => {
    expect(
      (await ask({ questions: [{ name: 'a.example', type: 'TXT', class: 'CH' }] })).rcode,
    ).toBe('REFUSED');
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
    [
      'more than a question',
      Buffer.concat([
        encode({ type: 'query', id: 1, questions: [{ name: 'a.example', type: 'A' }] }),
        Buffer.alloc(2000),
      ]),
      1,
    ],
    ['another opcode', Buffer.from('000128000001000000000000', 'hex'), 4],
  ])('survives %s', async (_, query, expected) => {
    const judgeNothing = jest.fn(judge);
    expect(rcode((await answerQuery(query, judgeNothing))?.reply)).toBe(expected);
    expect(judgeNothing).not.toHaveBeenCalled();
  });

  it('never throws on noise', async () => {
    let seed = 1;
    const random = () => (seed = (seed * 48_271) % 2_147_483_647) & 0xff;
    const base = encode({ type: 'query', id: 7, questions: [{ name: 'a.example', type: 'A' }] });
    for (let round = 0; round < 5000; round += 1) {
      const noise = Buffer.from(base);
      for (let flips = 0; flips < 3; flips += 1)
        noise[4 + (random() % (noise.length - 4))] = random();
      const reply = await answerQuery(noise, judge);
      expect(reply === undefined || reply.reply.length >= 12).toBe(true);
    }
  });
});
