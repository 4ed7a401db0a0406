import { decode, encode } from 'dns-packet';
import type { Answer, Packet, Question } from 'dns-packet';

const RCODE = { noError: 0, formatError: 1, notImplemented: 4, refused: 5 } as const;
const RECURSION_DESIRED = 1 << 8;
const RECURSION_AVAILABLE = 1 << 7;
const OPCODE_SHIFT = 11;
const OPCODE_MASK = 0xf;
const HEADER_BYTES = 12;
const EDNS_PAYLOAD = 1232;
/** Short, as an address may be given to another name once it is forgotten. Seconds. */
const TTL = 60;

/** The address for a name, or why it gets none. */
export type NameVerdict = { address: string } | { refused: string };

export interface DnsReply {
  reply: Buffer;
  /** Set if the answer was REFUSED for the name's sake. */
  refused?: { name: string; why: string };
}

/**
 * Answers one DNS message by itself, without asking anyone: an allowed name has exactly one A record and nothing else,
 * every other name is REFUSED.
 * @param query the message as it came, without the length prefix of TCP
 * @param judge called with the name that is asked for, without its underscore labels (`_http._tcp.`)
 * @returns `undefined` for what deserves no answer: too short for a header, or itself a response
 */
export function answerQuery(
  query: Buffer,
  judge: (name: string) => NameVerdict,
): DnsReply | undefined {
  if (query.length < HEADER_BYTES || (query.readUInt8(2) & 0x80) !== 0) return undefined;
  const flags = query.readUInt16BE(2);
  if (((flags >> OPCODE_SHIFT) & OPCODE_MASK) !== 0) {
    return { reply: headerOnly(query, RCODE.notImplemented) };
  }
  let packet: Packet;
  try {
    packet = decode(query);
  } catch {
    return { reply: headerOnly(query, RCODE.formatError) };
  }
  const [question, ...others] = packet.questions ?? [];
  if (question === undefined || others.length > 0) {
    return { reply: headerOnly(query, RCODE.formatError) };
  }

  const host = question.name.replace(/^(_[^.]+\.)+/, '');
  const verdict: NameVerdict =
    question.class === 'IN' ? judge(host) : { refused: 'not an internet name' };
  if ('refused' in verdict) {
    const reply = respond(query, packet, question, RCODE.refused, []);
    return { reply, refused: { name: host, why: verdict.refused } };
  }
  const isHost = host === question.name;
  const answers: Answer[] =
    question.type === 'A' && isHost
      ? [{ type: 'A', name: question.name, ttl: TTL, data: verdict.address }]
      : [];
  return { reply: respond(query, packet, question, RCODE.noError, answers) };
}

function respond(
  query: Buffer,
  packet: Packet,
  question: Question,
  rcode: number,
  answers: Answer[],
): Buffer {
  const hasEdns = packet.additionals?.some((record) => record.type === 'OPT') ?? false;
  const edns: Answer = {
    type: 'OPT',
    name: '.',
    udpPayloadSize: EDNS_PAYLOAD,
    extendedRcode: 0,
    ednsVersion: 0,
    flags: 0,
    flag_do: false,
    options: [],
  };
  try {
    return encode({
      type: 'response',
      id: packet.id,
      flags: ((packet.flags ?? 0) & RECURSION_DESIRED) | RECURSION_AVAILABLE | rcode,
      questions: [question],
      answers,
      additionals: hasEdns ? [edns] : [],
    });
  } catch {
    // A question that can be read and not written again, such as one with an illegal label.
    return headerOnly(query, RCODE.formatError);
  }
}

function headerOnly(query: Buffer, rcode: number): Buffer {
  const reply = Buffer.alloc(HEADER_BYTES);
  query.copy(reply, 0, 0, 4);
  reply.writeUInt16BE(0x8000 | (query.readUInt16BE(2) & 0x7900) | RECURSION_AVAILABLE | rcode, 2);
  return reply;
}
