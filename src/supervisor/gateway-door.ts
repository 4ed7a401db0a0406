import { createServer, type Server } from 'node:net';
import { DialError, reset, splice } from '../gateway/egress/connections.js';
import { gatewayAt } from '../gateway/client.js';
import { BROKER } from './relay/listener-plan.js';
import type { GatewayLink } from './relay/relay-thread.js';

const RETRY_MS = 1_000;

/**
 * Connects programs in this machine to the gateway in the name of their sandbox, whose secret they do not have. For
 * machines without a relay: their network is restricted elsewhere.
 * @param link is asked for each connection
 */
export function openGatewayDoor(link: () => GatewayLink | undefined): Server {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (client) => {
    client.on('error', () => undefined);
    const found = link();
    if (found === undefined) return reset(client);
    const gone = new AbortController();
    client.once('close', () => gone.abort());
    gatewayAt(found.address)
      .broker(found.sandboxId, gone.signal)
      .then((upstream) => {
        upstream.on('error', () => undefined);
        if (client.destroyed) reset(upstream);
        else splice(client, upstream);
      })
      .catch((error: unknown) => {
        if (!(error instanceof DialError)) process.stderr.write(`gateway: ${String(error)}\n`);
        reset(client);
      });
  });
  const { port, address: host } = BROKER;
  // The supervisor before this one may still be ending.
  server.on('error', () => setTimeout(() => server.listen({ port, host }), RETRY_MS).unref());
  return server.listen({ port, host });
}
