import { createServer, type Server, type Socket } from 'node:net';
import { DialError, type Egress, reset, splice } from './egress/connections.js';
import type { Broker } from './broker/broker.js';
import type {
  BrokerRequest,
  EgressAnswer,
  EgressHold,
  EgressLookup,
  EgressRequest,
  StatsRequest,
  UsageRequest,
} from './protocol.js';
import { EGRESS_LIMITS, type EgressLimits, EgressShares } from './shares.js';
import { readLine } from './read-line.js';
import type { GrantSeal } from './grants.js';
import type { UsageFeed } from './usage/feed.js';

const REQUEST_MS = 10_000;
const RELIEF_MS = 250;

export interface GatewayOptions {
  /** Resolves names, checks addresses and connects. */
  egress: Egress;
  /** Serves requests with grants. Default: no such requests. */
  broker?: Broker;
  /** Delivers usage to workers, which prove that they have the keys of the seal. Default: nobody can read usage. */
  usage?: { feed: UsageFeed; seal: GrantSeal };
  /** Returns the broker's metrics. Default: there are none. */
  stats?: () => object;
  /** The program and its configuration, see GatewayConfig. The answer to `hold` has it. */
  version?: string;
  limits?: EgressLimits;
}

/** Who is at the other end of a connection over the network. */
export interface Peer {
  /** The sandbox that the peer has proven to be the relay of; `null` for a peer that has proven nothing yet. */
  sandbox: string | null;
}

/** Serves the relays of sandboxes on a unix socket, see {@link RelayServer}. All who can connect to it are trusted. */
export function createGateway(options: GatewayOptions | RelayServer): Server {
  const relays = options instanceof RelayServer ? options : new RelayServer(options);
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true });
  server.on('connection', (client) => relays.serve(client));
  // Services that keep this gateway running connect again, and then keep the new one running.
  server.on('replaced', () => relays.releaseHolds());
  server.once('close', () => relays.close());
  return server;
}

/**
 * Serves the relays of sandboxes: resolves names and connects to them, except to addresses that the address policy
 * forbids, and passes requests with grants to the broker. No relay can use up the shares of others.
 */
export class RelayServer {
  private readonly shares: EgressShares;
  private readonly holds = new Set<Socket>();
  private readonly relief: NodeJS.Timeout;

  constructor(private readonly options: GatewayOptions) {
    this.shares = new EgressShares(options.limits ?? EGRESS_LIMITS);
    this.relief = setInterval(() => this.shares.relieve(), RELIEF_MS).unref();
  }

  /** @param peer for connections over the network. Default: the client is trusted and says itself which relay it is. */
  serve(client: Socket, peer?: Peer): void {
    client.on('error', () => undefined);
    serve(client, this.options, { shares: this.shares, holds: this.holds, peer }).catch(() =>
      reset(client),
    );
  }

  /** Disconnects all that keep the gateway running. */
  releaseHolds(): void {
    this.holds.forEach((client) => client.destroy());
  }

  close(): void {
    clearInterval(this.relief);
  }
}

async function serve(
  client: Socket,
  { egress, broker, usage, stats, version }: GatewayOptions,
  { shares, holds, peer }: { shares: EgressShares; holds: Set<Socket>; peer: Peer | undefined },
): Promise<void> {
  const request = asPeer(
    peer,
    JSON.parse(await readLine(client, REQUEST_MS)) as
      EgressRequest | EgressLookup | BrokerRequest | EgressHold | StatsRequest | UsageRequest,
  );
  if ('hold' in request) {
    client.write(`${JSON.stringify({ ok: true, version } satisfies EgressAnswer)}\n`);
    holds.add(client);
    client.once('close', () => holds.delete(client));
    return void client.resume().once('end', () => client.end());
  }
  if ('stats' in request) return void client.end(JSON.stringify(stats?.() ?? []));
  if ('usage' in request) {
    const accepted = usage?.feed.attach(client, request.usage, usage.seal) === true;
    return accepted ? void client.once('end', () => client.end()) : reset(client);
  }
  const gone = new AbortController();
  const abandon = (): void => gone.abort();
  client.once('close', abandon).once('end', abandon);
  // A relay sends nothing until it has its answer, so the only possible event is that it disconnects.
  client.resume();
  const answer = (message: EgressAnswer): void => {
    client.write(`${JSON.stringify(message)}\n`);
  };
  const fail = (error: unknown): void => {
    const { kind, message } =
      error instanceof DialError ? error : new DialError('failed', (error as Error).message);
    answer({ ok: false, kind, message });
    client.end();
  };
  const { relay } = request;
  if (!shares.admit(relay, client)) return fail(new DialError('failed', 'too many connections'));
  if ('broker' in request) {
    if (broker === undefined) return fail(new DialError('refused', 'there is no broker'));
    client.off('end', abandon).pause();
    answer({ ok: true });
    return broker.serve(client, request.broker);
  }
  if ('lookup' in request) {
    try {
      answer({ ok: true, found: await egress.exists(request.lookup, gone.signal) });
      return void client.end();
    } catch (error) {
      return fail(error);
    }
  }
  const { host, port, isGateway } = request;
  let upstream: Socket;
  try {
    upstream = await egress.connect({ host, port, isGateway }, gone.signal);
  } catch (error) {
    return fail(error);
  }
  upstream.on('error', () => undefined);
  if (client.destroyed || gone.signal.aborted) {
    reset(upstream);
    return reset(client);
  }
  client.off('end', abandon).pause();
  answer({ ok: true });
  shares.connected(relay, client, upstream);
  splice(client, upstream);
}

/**
 * The request as its peer may send it: a relay on the network always speaks for its own sandbox, and a peer that has
 * proven nothing can only ask for usage, which needs another proof.
 * @throws Error if the peer may not send it
 */
function asPeer<R extends object>(peer: Peer | undefined, request: R): R {
  if (peer === undefined) return request;
  if (peer.sandbox === null) {
    if ('usage' in request) return request;
  } else if ('relay' in request) {
    const { sandbox } = peer;
    return { ...request, relay: sandbox, ...('broker' in request && { broker: sandbox }) };
  }
  throw new Error('this peer may not ask for it');
}
