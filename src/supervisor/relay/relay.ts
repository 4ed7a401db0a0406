import { createSocket, type Socket as DatagramSocket } from 'node:dgram';
import { createServer, type Server, type Socket } from 'node:net';
import type { PrivateHost } from '../../common/egress-network.js';
import { normalizeHostName } from '../../common/host-pattern.js';
import { adoptListeners } from './adoption.js';
import { bindListeners, type ListenerDescriptor, type NativeHandle } from './binding.js';
import { ServerNameReader, peekHost } from './client-hello.js';
import { Destinations, type Destination } from './destinations.js';
import { Dials } from './dials.js';
import { DialError, type Egress, reset, splice } from '../../gateway/egress/connections.js';
import {
  answerQuery,
  serveDnsOverTcp,
  serveDnsOverUdp,
  type DnsReply,
  type NameVerdict,
} from './dns-responder.js';
import { RateLimit } from '../../common/rate-limit.js';
import { RELAY_LIMITS, type RelayLimits } from './limits.js';
import { BROKER, type ListenerSpec } from './listener-plan.js';
import { NameLookups } from './name-lookups.js';
import { RefusalLog, type RefusalEvent } from '../refusals.js';
import type { ChildProcess } from 'node:child_process';
import type { NetworkPolicy } from '../calls.js';
import type { Gateway } from './gateways.js';
import type { HttpGate } from './http-gate.js';

export interface RelayOptions {
  policy: NetworkPolicy;
  /** Reachable in addition to the policy's hosts; see `routeGateways` for the host of each one in the sandbox. */
  gateways: readonly Gateway[];
  /** The operator's private hosts. If the policy allows one, it is also reachable at its listed ports. */
  privateHosts?: readonly PrivateHost[] | undefined;
  /** Called with refused destinations, at a bounded rate. Must not throw. */
  log?: (event: RefusalEvent) => void;
  /** Default: resolves names and connects in this process. */
  egress?: Egress;
  /** Connects to the gateway's broker in the name of the sandbox. Default: there is no broker. */
  broker?: (signal: AbortSignal) => Promise<Socket>;
  /** The limits of the sandbox. Default: {@link RELAY_LIMITS}. */
  limits?: Partial<RelayLimits> | undefined;
}

const ADOPTION_TIMEOUT_MS = 10_000;
const PEEK_LIMITS = { maxBytes: 32_768, timeoutMs: 30_000 };
const HTTP_PORT = 80;
const HTTPS_PORT = 443;

/**
 * The only way out of a sandbox's network namespace, which has only `lo`. The relay answers DNS with synthetic
 * addresses for the names that the policy allows, accepts connections to these addresses, and connects to the names
 * from this process, which is in the host's namespace. So a sandbox can only connect to names, and only if they resolve
 * to public addresses.
 *
 * How to embed it: spawn the sandbox's outer process with an 'ipc' channel and let it run the {@link listenCommand} of
 * its {@link listeners} as root of the new namespaces. Then {@link adopt} it, and only then let it start anything
 * untrusted, without the channel's descriptor. In the sandbox, resolv.conf must name {@link NAMESERVER}. Nothing that a
 * sandbox or a remote host does makes the relay throw.
 *
 * Not served: UDP and ICMP, and ports other than {@link SERVED_PORTS} (except those of gateways and private hosts). TLS is not
 * decrypted: in `limited` mode, a client can request from an allowed server any host that this server also serves.
 */
export class Relay {
  private readonly destinations: Destinations;
  /** The sockets that it serves. */
  readonly listeners: readonly ListenerSpec[];
  private readonly refusals: RefusalLog;
  private readonly egress: Egress;
  private readonly limits: RelayLimits;
  private readonly dials: Dials;
  private readonly questionRate: RateLimit;
  private readonly lookups: NameLookups;
  private http: Promise<HttpGate> | undefined;
  private readonly closing = new AbortController();
  private readonly listening = new Set<Server | DatagramSocket>();
  private readonly sockets = new Set<Socket>();
  private accepted = 0;

  /** @throws HostPatternError, RangeError for a policy or gateway that cannot be applied as it is */
  constructor(private readonly options: RelayOptions) {
    this.destinations = new Destinations(options.policy, options.gateways, options.privateHosts);
    this.listeners = this.destinations.listeners();
    this.refusals = new RefusalLog(options.log ?? (() => undefined));
    this.egress = options.egress ?? ownEgress();
    this.limits = { ...RELAY_LIMITS, ...options.limits };
    this.dials = new Dials(this.limits, this.closing.signal, (socket) => this.own(socket));
    this.questionRate = new RateLimit(this.limits.questionsPerSecond);
    this.lookups = new NameLookups(
      (name) => this.egress.exists(name, this.closing.signal),
      this.limits,
    );
  }

  /**
   * Receives the sockets from the child and serves them. When it resolves, the child continues after
   * that command, and the IPC channel is closed (so Node emits 'exit' for the child, but never 'close').
   * @throws Error if the sockets do not arrive; see the child's stderr for the cause
   */
  async adopt(child: ChildProcess): Promise<void> {
    for (const { spec, handle } of await adoptListeners(
      child,
      this.listeners,
      ADOPTION_TIMEOUT_MS,
    )) {
      if (spec.role === 'dns') this.bindDns(handle);
      else this.serveTcp(handle, spec);
    }
    if (this.closing.signal.aborted) await this.close();
  }

  /** Serves sockets that listen in a sandbox's namespace, and closes them at the end. */
  async serveDescriptors(listeners: readonly ListenerDescriptor[]): Promise<void> {
    for (const { spec, fd } of listeners) {
      if (spec.role === 'dns') this.bindDns({ fd });
      else this.serveTcp({ fd }, spec);
    }
    if (this.closing.signal.aborted) await this.close();
  }

  /**
   * Serves the network namespace of this process, which must be a sandbox's namespace. The sandbox must not have access
   * to this process in other ways.
   * @throws Error if a socket cannot be bound
   */
  async listen(): Promise<void> {
    for (const listener of await bindListeners(this.listeners)) {
      if (listener === undefined) continue;
      const { spec, socket } = listener;
      if (spec.role === 'dns') this.serveDns(socket as DatagramSocket);
      else this.serveTcp(socket as Server, spec);
    }
    if (this.closing.signal.aborted) await this.close();
  }

  /** Stops listening and resets every connection. Resolves when everything is closed. Idempotent. */
  async close(): Promise<void> {
    this.closing.abort();
    const closed = [...this.listening].map(
      (handle) => new Promise<void>((resolve) => void handle.close(() => resolve())),
    );
    this.listening.clear();
    for (const socket of this.sockets) reset(socket);
    await Promise.all(closed);
  }

  /** Node also accepts its own handles here, although the types only mention the descriptor. */
  private bindDns(listening: { fd: number } | NativeHandle): void {
    const socket = createSocket('udp4');
    socket.bind(listening);
    this.serveDns(socket);
  }

  private serveDns(socket: DatagramSocket): void {
    this.listening.add(socket);
    socket.on('error', () => undefined);
    serveDnsOverUdp(socket, (query) => this.answer(query));
  }

  private serveTcp(listening: Server | NativeHandle | { fd: number }, spec: ListenerSpec): void {
    // A server that was bound elsewhere has default options, so its handle is passed to one with our options.
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true });
    server.on('connection', (socket) => this.accept(socket, spec));
    // For example too many open files: only that connection is lost.
    server.on('error', () => undefined);
    server.listen(listening);
    this.listening.add(server);
  }

  private accept(client: Socket, spec: ListenerSpec): void {
    client.on('error', () => undefined);
    if (this.closing.signal.aborted) return reset(client);
    if (this.accepted >= this.limits.connections)
      return this.refuse(client, tooMany('connections'));
    this.accepted += 1;
    this.own(client);
    client.once('close', () => (this.accepted -= 1));
    if (spec.role === 'dns-tcp') serveDnsOverTcp(client, (query) => this.answer(query));
    else this.connect(client).catch(() => reset(client));
  }

  private async answer(query: Buffer): Promise<DnsReply | undefined> {
    if (!this.questionRate.take()) {
      this.refusals.refused({ name: 'DNS', why: 'too many questions in a second' });
      return undefined;
    }
    const reply = await answerQuery(query, (name) => this.judgeName(name));
    if (reply?.refused) this.refusals.refused(reply.refused);
    return reply;
  }

  private async judgeName(text: string): Promise<NameVerdict> {
    const name = this.destinations.nameToLookUp(text);
    if (name !== undefined) {
      const existence = await this.lookups.existenceOf(name);
      if (existence === 'missing') return { missing: true };
      if (existence === 'failed') return { failed: true };
      if (existence === 'busy') return { failed: true, why: 'too many names are looked up' };
    }
    return this.destinations.judgeName(text);
  }

  private async connect(client: Socket): Promise<void> {
    const { localAddress, localPort } = client;
    if (localAddress === undefined || localPort === undefined) return reset(client);
    const { broker } = this.options;
    if (broker !== undefined && localAddress === BROKER.address && localPort === BROKER.port)
      return splice(client, await this.dials.dialFor(client, broker));
    const verdict = this.destinations.judgeConnection(localAddress, localPort);
    if ('refused' in verdict) return this.refuse(client, { ...verdict.refused, port: localPort });
    const { destination } = verdict;
    const dial = (signal: AbortSignal): Promise<Socket> => this.egress.connect(destination, signal);
    const refuse = (why: string): void =>
      this.refuse(client, { name: destination.host, why, port: localPort });

    if (destination.claimedName !== undefined && destination.port === HTTP_PORT) {
      const gate = await this.httpGate();
      return gate.serve(client, {
        host: destination.claimedName,
        connect: () => this.dials.dialFor(client, dial),
        refused: refuse,
      });
    }
    const first = await this.peek(client, destination);
    if ('refused' in first) return refuse(first.refused);
    let upstream: Socket;
    try {
      upstream = await this.dials.dialFor(client, dial);
    } catch (error) {
      if (error instanceof DialError && error.kind === 'refused') return refuse(error.message);
      return reset(client);
    }
    if (first.bytes.length > 0) upstream.write(first.bytes);
    splice(client, upstream);
  }

  /** Created when first needed, because most sandboxes of a host never need it. */
  private httpGate(): Promise<HttpGate> {
    this.http ??= import('./http-gate.js').then((module) => new module.HttpGate());
    return this.http;
  }

  /** Reads the host that the client names, if the policy requires that. */
  private async peek(
    client: Socket,
    { claimedName, port }: Destination,
  ): Promise<{ bytes: Buffer } | { refused: string }> {
    if (claimedName === undefined || port !== HTTPS_PORT) return { bytes: Buffer.alloc(0) };
    const { bytes, claim } = await peekHost(client, new ServerNameReader(), PEEK_LIMITS);
    if (claim.state !== 'named') {
      return { refused: claim.state === 'unnamed' ? claim.why : 'no host named' };
    }
    return normalizeHostName(claim.host) === claimedName
      ? { bytes }
      : { refused: `the client asked it for another host: ${claim.host.slice(0, 100)}` };
  }

  private refuse(client: Socket, refused: { name: string; why: string; port?: number }): void {
    this.refusals.refused(refused);
    reset(client);
  }

  private own(socket: Socket): void {
    this.sockets.add(socket);
    socket.once('close', () => this.sockets.delete(socket));
  }
}

function tooMany(what: string): { name: string; why: string } {
  return { name: what, why: 'too many at once' };
}

/** Resolves names and connects in this process. Loaded when first needed: behind a gateway, it never is. */
function ownEgress(): Egress {
  let loaded: Promise<Egress> | undefined;
  const load = (): Promise<Egress> => {
    loaded ??= import('../../gateway/egress/dialing.js').then(({ hostEgress }) => hostEgress());
    return loaded;
  };
  return {
    connect: async (target, signal) => (await load()).connect(target, signal),
    exists: async (host, signal) => (await load()).exists(host, signal),
  };
}
