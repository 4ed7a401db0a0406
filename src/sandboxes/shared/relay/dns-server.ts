import type { Socket as DatagramSocket } from 'node:dgram';
import type { Socket } from 'node:net';
import type { DnsReply } from './dns-responder.js';

type Answerer = (query: Buffer) => DnsReply | undefined;

const IDLE_MS = 10_000;
const LENGTH_PREFIX = 2;

/** Answers each datagram on a bound socket. */
export function serveDnsOverUdp(socket: DatagramSocket, answer: Answerer): void {
  socket.on('message', (query, from) => {
    const reply = answer(query)?.reply;
    // A failed answer is a lost datagram: the client asks again.
    if (reply) socket.send(reply, from.port, from.address, () => undefined);
  });
}

/** Answers length-prefixed queries on one connection, in order, until the client ends it or is silent for 10 s. */
export function serveDnsOverTcp(socket: Socket, answer: Answerer): void {
  let pending: Buffer = Buffer.alloc(0);
  socket.setTimeout(IDLE_MS, () => socket.destroy());
  socket.on('end', () => socket.end());
  socket.on('data', (chunk) => {
    pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
    while (pending.length >= LENGTH_PREFIX) {
      const end = LENGTH_PREFIX + pending.readUInt16BE(0);
      if (pending.length < end) break;
      const reply = answer(pending.subarray(LENGTH_PREFIX, end))?.reply;
      pending = pending.subarray(end);
      if (reply && !write(socket, reply)) {
        socket.pause();
        socket.once('drain', () => socket.resume());
      }
    }
  });
  socket.resume();
}

function write(socket: Socket, reply: Buffer): boolean {
  const prefix = Buffer.alloc(LENGTH_PREFIX);
  prefix.writeUInt16BE(reply.length, 0);
  return socket.write(Buffer.concat([prefix, reply]));
}
