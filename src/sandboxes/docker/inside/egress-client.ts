import { connect } from 'node:net';
import { DialError } from '../../shared/relay/dialing.js';
import type { Connect } from '../../shared/relay/relay.js';
import { reset } from '../../shared/relay/splice.js';
import type { EgressAnswer, EgressRequest } from './egress-protocol.js';
import { readLine } from './read-line.js';

/** The egress resolves and dials within a minute, or has failed. */
const ANSWER_MS = 70_000;

/** Connects by way of the egress that listens on a unix socket. */
export function connectThroughEgress(socketPath: string): Connect {
  return async ({ host, port, isGateway }, signal) => {
    const socket = connect({ path: socketPath, allowHalfOpen: true });
    const abandon = (): void => reset(socket);
    signal.addEventListener('abort', abandon);
    socket.on('error', () => undefined);
    const request: EgressRequest = { host, port, isGateway };
    socket.write(`${JSON.stringify(request)}\n`);
    try {
      const answer = JSON.parse(await readLine(socket, ANSWER_MS)) as EgressAnswer;
      if (answer.ok) return socket;
      throw new DialError(answer.kind, answer.message);
    } catch (error) {
      reset(socket);
      if (error instanceof DialError) throw error;
      throw new DialError('failed', `the egress does not answer: ${(error as Error).message}`);
    } finally {
      signal.removeEventListener('abort', abandon);
    }
  };
}
