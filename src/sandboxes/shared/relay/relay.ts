import { createServer } from 'node:net';
import { adoptListeners } from './adoption.js';
import { type BoundListener, bindListeners } from './binding.js';
import { readServerName } from './client-hello.js';
import { Destinations } from './destinations.js';
import { DialError, dialDestination, dialFromHost, resolveOnHost } from './dialing.js';
import { answerQuery } from './dns-responder.js';
import { serveDnsOverTcp, serveDnsOverUdp } from './dns-server.js';
import { normalizeHostName } from '../../../common/host-pattern.js';
import { readRequestHost } from './http-head.js';
import { peekHost } from './peek.js';
import { RefusalLog } from './refusal-log.js';
import { reset, splice } from './splice.js';
import type { ChildProcess } from 'node:child_process';
import type { Socket as DatagramSocket } from 'node:dgram';
import type { Server, Socket } from 'node:net';
import type { NetworkPolicy } from '../../sandbox-driver.js';
import type { Destination } from './destinations.js';
import type { DnsReply } from './dns-responder.js';
import type { Gateway } from './gateways.js';
import type { ListenerSpec } from './listener-plan.js';
import type { HostClaim } from './peek.js';
import type { RefusalEvent } from './refusal-log.js';

export interface RelayOptions {
  policy: NetworkPolicy;
  /** Reachable besides what the policy allows; see `routeGateways` for the host that stands for each one inside. */
  gateways: readonly Gateway[];
  /** Told of what was refused, at a bounded rate. Must not throw. */
  log?: (event: RefusalEvent) => void;
  /**
   * Connects to an allowed destination, with half-open allowed; rejects with a {@link DialError}. Default: resolves, vets
   * and dials it from this process.
   */
  connect?: Connect;
}

/** A way to an allowed destination that keeps to the address policy. */
export type Connect = (destination: Destination, signal: AbortSignal) => Promise<Socket>;

const ADOPTION_TIMEOUT_MS = 10_000;
/** Two descriptors each: together well below 1024, so that a sandbox cannot use up those of the process that serves it. */
const MAX_CONNECTIONS = 256;
const PEEK_LIMITS = { maxBytes: 32_768, timeoutMs: 30_000 };
/** The ports on which a client says which host it means, in the clear. */
const CLAIMS: ReadonlyMap<number, (bytes: Buffer) => HostClaim> = new Map([
  [80, readRequestHost],
  [443, readServerName],
]);

/**
 * The only way out of a sandbox's network namespace, which has nothing but `lo`. It answers DNS with synthetic addresses
 * for the names that the policy allows, accepts connections to those addresses, and dials the names from this process,
 * which is in the host's namespace. So a sandbox reaches names and never addresses, and reaches what a name stands for
 * only if that is a public address.
 *
 * How to embed it: spawn the sandbox's outer process with an 'ipc' channel, have it run
 * `node listeners.js <listenerArgs()>` as root of the new namespaces, {@link adopt} it, and only then let it start
 * anything untrusted, without the channel's descriptor. Inside, resolv.conf has to name {@link NAMESERVER}.
 * Nothing that a sandbox or a remote host does makes it throw.
 *
 * Not served: UDP and ICMP, and ports other than {@link SERVED_PORTS} (a gateway's own port excepted). Within TLS
 * nothing is seen: in `limited` mode a client may still ask an allowed server for whatever that server also serves.
 */
export class Relay {
  private readonly destinations: Destinations;
  private readonly plan: readonly ListenerSpec[];
  private readonly refusals: RefusalLog;
  private readonly connectTo: Connect;
  private readonly closing = new AbortController();
  private readonly listening = new Set<Server | DatagramSocket>();
  private readonly sockets = new Set<Socket>();
  private accepted = 0;

  /** @throws HostPatternError, RangeError for a policy or gateway that cannot be applied as it is */
  constructor(options: RelayOptions) {
    this.destinations = new Destinations(options.policy, options.gateways);
    this.plan = this.destinations.listeners();
    this.refusals = new RefusalLog(options.log ?? (() => undefined));
    this.connectTo =
      options.connect ??
      ((destination, signal) =>
        dialDestination(destination, { resolve: resolveOnHost, dial: dialFromHost, signal }));
  }

  /** The one argument that `listeners.js` takes. Not secret. */
  listenerArgs(): string {
    return JSON.stringify(this.plan);
  }

  /**
   * Takes the sockets from the child and serves them. When it resolves, the child goes on to whatever it runs after
   * `listeners.js`, and the IPC channel is closed (so that Node emits 'exit' for the child, but never 'close').
   * @throws Error if the sockets do not arrive; see the child's stderr for the cause
   */
  async adopt(child: ChildProcess): Promise<void> {
    await this.serve(await adoptListeners(child, this.plan, ADOPTION_TIMEOUT_MS));
  }

  /**
   * Serves the network namespace of this very process, which has to be a sandbox's and otherwise out of its reach.
   * @throws Error if a socket cannot be bound
   */
  async listen(): Promise<void> {
    await this.serve((await bindListeners(this.plan)).filter((listener) => listener !== undefined));
  }

  private async serve(listeners: readonly BoundListener[]): Promise<void> {
    for (const { spec, handle } of listeners) {
      if (spec.role === 'dns') this.serveDns(handle as DatagramSocket);
      else this.serveTcp(handle as Server, spec);
    }
    if (this.closing.signal.aborted) await this.close();
  }

  /** Stops listening and resets every connection. Resolves when nothing of it is left. Idempotent. */
  async close(): Promise<void> {
    this.closing.abort();
    const closed = [...this.listening].map(
      (handle) => new Promise<void>((resolve) => void handle.close(() => resolve())),
    );
    this.listening.clear();
    for (const socket of this.sockets) reset(socket);
    await Promise.all(closed);
  }

  private serveDns(socket: DatagramSocket): void {
    this.listening.add(socket);
    socket.on('error', () => undefined);
    serveDnsOverUdp(socket, (query) => this.answer(query));
  }

  private serveTcp(arrived: Server, spec: ListenerSpec): void {
    // The server that came over the channel has default options, so its handle goes to one with ours.
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true });
    server.on('connection', (socket) => this.accept(socket, spec));
    // For example too many open files: that one connection is lost, the server goes on.
    server.on('error', () => undefined);
    server.listen(arrived);
    this.listening.add(server);
  }

  private accept(client: Socket, spec: ListenerSpec): void {
    client.on('error', () => undefined);
    if (this.accepted >= MAX_CONNECTIONS || this.closing.signal.aborted) {
      reset(client);
      return;
    }
    this.accepted += 1;
    this.own(client);
    client.once('close', () => (this.accepted -= 1));
    if (spec.role === 'dns-tcp') serveDnsOverTcp(client, (query) => this.answer(query));
    else this.connect(client).catch(() => reset(client));
  }

  private answer(query: Buffer): DnsReply | undefined {
    const reply = answerQuery(query, (name) => this.destinations.judgeName(name));
    if (reply?.refused) this.refusals.refused(reply.refused);
    return reply;
  }

  private async connect(client: Socket): Promise<void> {
    const { localAddress, localPort } = client;
    if (localAddress === undefined || localPort === undefined) return reset(client);
    const verdict = this.destinations.judgeConnection(localAddress, localPort);
    if ('refused' in verdict) return this.refuse(client, verdict.refused, localPort);
    const { destination } = verdict;

    const first = await this.peek(client, destination);
    if ('refused' in first) {
      return this.refuse(client, { name: destination.host, why: first.refused }, localPort);
    }
    let upstream: Socket;
    try {
      upstream = await this.dialFor(client, destination);
    } catch (error) {
      if (error instanceof DialError && error.kind === 'refused') {
        return this.refuse(client, { name: destination.host, why: error.message }, localPort);
      }
      return reset(client);
    }
    upstream.on('error', () => undefined);
    this.own(upstream);
    if (client.destroyed || this.closing.signal.aborted) {
      reset(upstream);
      return reset(client);
    }
    if (first.bytes.length > 0) upstream.write(first.bytes);
    splice(client, upstream);
  }

  /** Reads what the client says about the host it means, where the policy asks for that. */
  private async peek(
    client: Socket,
    { claimedName, port }: Destination,
  ): Promise<{ bytes: Buffer } | { refused: string }> {
    const parse = CLAIMS.get(port);
    if (claimedName === undefined || parse === undefined) return { bytes: Buffer.alloc(0) };
    const { bytes, claim } = await peekHost(client, parse, PEEK_LIMITS);
    if (claim.state !== 'named') {
      return { refused: claim.state === 'unnamed' ? claim.why : 'no host named' };
    }
    return normalizeHostName(claim.host) === claimedName
      ? { bytes }
      : { refused: `the client asked it for another host: ${claim.host.slice(0, 100)}` };
  }

  /** Dials for as long as the client is there. */
  private async dialFor(client: Socket, destination: Destination): Promise<Socket> {
    const gone = new AbortController();
    const onClose = (): void => gone.abort();
    client.once('close', onClose);
    try {
      return await this.connectTo(destination, AbortSignal.any([gone.signal, this.closing.signal]));
    } finally {
      client.off('close', onClose);
    }
  }

  private refuse(client: Socket, refused: { name: string; why: string }, port: number): void {
    this.refusals.refused({ ...refused, port });
    reset(client);
  }

  private own(socket: Socket): void {
    this.sockets.add(socket);
    socket.once('close', () => this.sockets.delete(socket));
  }
}
