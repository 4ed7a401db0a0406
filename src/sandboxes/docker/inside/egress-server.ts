import { createServer, type Server, type Socket } from 'node:net';
import { DialError } from '../../shared/relay/dialing.js';
import type { Connect } from '../../shared/relay/relay.js';
import { reset, splice } from '../../shared/relay/splice.js';
import type { EgressAnswer, EgressHold, EgressRequest } from './egress-protocol.js';
import { readLine } from './read-line.js';

const REQUEST_MS = 10_000;

/**
 * Serves the relays of sandboxes: connects for them to names, never to anything that the address policy refuses.
 * @param connect resolves, vets and dials
 */
export function createEgress(connect: Connect): Server {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true });
  server.on('connection', (client) => {
    client.on('error', () => undefined);
    serve(client, connect).catch(() => reset(client));
  });
  return server;
}

async function serve(client: Socket, connect: Connect): Promise<void> {
  const request = JSON.parse(await readLine(client, REQUEST_MS)) as EgressRequest | EgressHold;
  if ('hold' in request) return void client.resume().once('end', () => client.end());
  const { host, port, isGateway } = request;
  const gone = new AbortController();
  client.once('close', () => gone.abort());
  const answer = (message: EgressAnswer): void => {
    client.write(`${JSON.stringify(message)}\n`);
  };
  let upstream: Socket;
  try {
    upstream = await connect({ host, port, isGateway }, gone.signal);
  } catch (error) {
    const { kind, message } =
      error instanceof DialError ? error : new DialError('failed', (error as Error).message);
    answer({ ok: false, kind, message });
    client.end();
    return;
  }
  upstream.on('error', () => undefined);
  if (client.destroyed) return reset(upstream);
  answer({ ok: true });
  splice(client, upstream);
}
