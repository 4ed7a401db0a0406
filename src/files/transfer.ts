import type { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { arrivals } from '../common/arrivals.js';
import type { OpenFile } from '../supervisor/files/file-access.js';
import type { Part } from './ranges.js';

/** Sends a stream. Ends the connection if the client takes nothing for `idleSeconds`. */
export function sendStream(reply: FastifyReply, stream: Readable, idleSeconds: number): void {
  reply.raw.setTimeout(idleSeconds * 1000, () => reply.raw.destroy());
  void reply.send(stream);
}

/** Fires when nothing more arrives of the body of a request for `idleSeconds`, while the service takes what arrives. */
export function stallOf(request: FastifyRequest, idleSeconds: number): AbortSignal {
  const stall = new AbortController();
  request.raw.setTimeout(idleSeconds * 1000, () => stall.abort());
  return stall.signal;
}

/** Fires when the answer is complete or its client is gone. */
export function endOf(reply: FastifyReply): AbortSignal {
  const end = new AbortController();
  reply.raw.once('close', () => end.abort());
  if (reply.raw.destroyed) end.abort();
  return end.signal;
}

/** A part of an open file, which is closed with it. */
export async function* contentOf(
  file: OpenFile,
  { offset, length }: Part,
): AsyncGenerator<Buffer, void, undefined> {
  try {
    yield* file.read(offset, length);
  } finally {
    await file.close();
  }
}

/** The body of a request. Throws if the client is gone before its end, so that no half of it is taken for all. */
export async function* bodyOf({ raw }: FastifyRequest): AsyncGenerator<Buffer, void, undefined> {
  // Not the request's own iterator, which would close the connection before a refusal is answered.
  yield* arrivals(raw);
  if (!raw.complete) throw new Error('the request ended early');
}
