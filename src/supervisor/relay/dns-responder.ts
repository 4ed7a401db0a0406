import { decode, encode, type Answer, type Packet, type Question } from 'dns-packet';
import type { Socket as DatagramSocket } from 'node:dgram';
import type { Socket } from 'node:net';

const RCODE = {
  noError: 0,
  formatError: 1,
  serverFailure: 2,
  noSuchName: 3,
  notImplemented: 4,
  refused: 5,
} as const;
const RECURSION_DESIRED = 1 << 8;
const RECURSION_AVAILABLE = 1 << 7;
const OPCODE_SHIFT = 11;
const OPCODE_MASK = 0xf;
const HEADER_BYTES = 12;
const EDNS_PAYLOAD = 1232;
/** Short, because a forgotten address may be assigned to another name. Seconds. */
const TTL = 60;

/** Queries consist of a name and some options. Longer ones are not decoded. Bytes. */
const MAX_QUERY_BYTES = EDNS_PAYLOAD;

/** The address for a name, or the reason why it has none. */
export type NameVerdict =
  | { address: string }
  /** The name does not exist. */
  | { missing: true }
  /** The policy does not allow it. */
  | { refused: string }
  /** The answer is temporarily unavailable; `why` if the sandbox itself caused that. */
  | { failed: true; why?: string };

export interface DnsReply {
  reply: Buffer;
  /** Set if the name was refused by the policy or for exceeding a limit. */
  refused?: { name: string; why: string };
}

/**
 * Answers one DNS message: an allowed name that exists has exactly one A record and nothing else, one that does not
 * exist is NXDOMAIN, and every other name is REFUSED.
 * @param query the message without the length prefix of TCP
 * @param judge called with the requested name, without underscore labels (`_http._tcp.`)
 * @returns `undefined` for messages without an answer: too short for a header, or themselves a response
 */
export async function answerQuery(
  query: Buffer,
  judge: (name: string) => NameVerdict | Promise<NameVerdict>,
): Promise<DnsReply | undefined> {
  if (query.length < HEADER_BYTES || (query.readUInt8(2) & 0x80) !== 0) return undefined;
  const flags = query.readUInt16BE(2);
  if (((flags >> OPCODE_SHIFT) & OPCODE_MASK) !== 0) {
    return { reply: headerOnly(query, RCODE.notImplemented) };
  }
  if (query.length > MAX_QUERY_BYTES) return { reply: headerOnly(query, RCODE.formatError) };
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
    question.class === 'IN' ? await judge(host) : { refused: 'not an internet name' };
  const without = (rcode: number): Buffer => respond(query, packet, question, rcode, []);
  if ('refused' in verdict) {
    return { reply: without(RCODE.refused), refused: { name: host, why: verdict.refused } };
  }
  if ('missing' in verdict) return { reply: without(RCODE.noSuchName) };
  if ('failed' in verdict) {
    const { why } = verdict;
    const reply = without(RCODE.serverFailure);
    return why === undefined ? { reply } : { reply, refused: { name: host, why } };
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
    // Some questions can be decoded but not encoded, such as one with an illegal label.
    return headerOnly(query, RCODE.formatError);
  }
}

function headerOnly(query: Buffer, rcode: number): Buffer {
  const reply = Buffer.alloc(HEADER_BYTES);
  query.copy(reply, 0, 0, 4);
  reply.writeUInt16BE(0x8000 | (query.readUInt16BE(2) & 0x7900) | RECURSION_AVAILABLE | rcode, 2);
  return reply;
}

type Answerer = (query: Buffer) => Promise<DnsReply | undefined>;

const IDLE_MS = 10_000;
const LENGTH_PREFIX = 2;

/** Answers each datagram on a bound socket. */
export function serveDnsOverUdp(socket: DatagramSocket, answer: Answerer): void {
  socket.on('message', (query, from) => {
    answer(query)
      .then((answered) => {
        if (answered) socket.send(answered.reply, from.port, from.address, () => undefined);
      })
      // A failed answer is like a lost datagram: the client retries. The same applies to an answer after the socket was
      // closed.
      .catch(() => undefined);
  });
}

/** Answers length-prefixed queries on one connection, in order, until the client closes it or is silent for 10 s. */
export function serveDnsOverTcp(socket: Socket, answer: Answerer): void {
  socket.setTimeout(IDLE_MS, () => socket.destroy());
  serveQueries(socket, answer).then(
    () => socket.end(),
    () => socket.destroy(),
  );
}

async function serveQueries(socket: Socket, answer: Answerer): Promise<void> {
  const message = new MessageReader();
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    for (const query of message.push(chunk)) {
      const reply = (await answer(query))?.reply;
      if (reply === undefined) continue;
      const prefix = Buffer.alloc(LENGTH_PREFIX);
      prefix.writeUInt16BE(reply.length, 0);
      if (!socket.write(Buffer.concat([prefix, reply]))) {
        await new Promise((resolve) => socket.once('drain', resolve).once('close', resolve));
      }
    }
  }
}

/** Assembles messages from pieces, copying each byte once. */
class MessageReader {
  private readonly prefix = Buffer.alloc(LENGTH_PREFIX);
  private prefixLength = 0;
  private message: Buffer | undefined;
  private length = 0;

  *push(chunk: Buffer): Generator<Buffer> {
    for (let at = 0; at < chunk.length;) {
      if (this.message === undefined) {
        const taken = chunk.copy(this.prefix, this.prefixLength, at);
        at += taken;
        this.prefixLength += taken;
        if (this.prefixLength < LENGTH_PREFIX) return;
        this.message = Buffer.alloc(this.prefix.readUInt16BE(0));
        this.length = 0;
      }
      const taken = chunk.copy(this.message, this.length, at);
      at += taken;
      this.length += taken;
      if (this.length < this.message.length) continue;
      const complete = this.message;
      this.message = undefined;
      this.prefixLength = 0;
      yield complete;
    }
  }
}
