import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { BrokerStats } from './broker/broker-stats.js';
import { Broker } from './broker/broker.js';
import type { Exchange } from './broker/exchange.js';
import { type Egress } from './egress/connections.js';
import { hostEgress } from './egress/dialing.js';
import { ProxyError } from './egress/proxy.js';
import type { SharedGatewayConfig } from './gateway-config.js';
import { GrantSeal } from './grants.js';
import { RelayServer } from './server.js';
import type { EgressLimits } from './shares.js';
import { UsageFeed } from './usage/feed.js';
import { USAGE_FOLDER } from './usage/journal-files.js';

/** How often an error of the proxy is logged. */
const PROXY_ERROR_MS = 60_000;

export interface GatewayServiceOptions extends SharedGatewayConfig {
  /** Absolute. Holds the usage. The process works in this folder from now on, because paths of sockets are short. */
  folder: string;
  /** The user and group that the process will run as. Default: the same. */
  user?: number | null;
  version?: string;
  limits?: EgressLimits;
  log: (entry: object) => void;
}

/** What every gateway consists of, wherever it listens. */
export interface GatewayService {
  relays: RelayServer;
  broker: Broker;
  usage: UsageFeed;
  seal: GrantSeal;
  stats: BrokerStats;
  close(): Promise<void>;
}

/** Makes the parts of a gateway. Changes the certificates that this process trusts, and its working folder. */
export async function openGatewayService(options: GatewayServiceOptions): Promise<GatewayService> {
  const { network, folder, limits, version } = options;
  const log = (entry: object): void => options.log({ time: new Date().toISOString(), ...entry });
  // The host's own certificates and the company's, for the proxy and for all upstreams. Node by itself only has its own.
  setDefaultCACertificates([
    ...getCACertificates('default'),
    ...getCACertificates('system'),
    ...(network?.certificates ?? []),
  ]);
  const egress = withProxyLog(hostEgress(undefined, undefined, network), log);
  // Relative paths stay short, and still work after a change of the user.
  process.chdir(folder);
  const usage = await UsageFeed.open(
    { folder: USAGE_FOLDER, owner: options.user ?? null },
    (message) => log({ event: 'error', message }),
  );
  const seal = new GrantSeal(options.grantKeys);
  const stats = new BrokerStats();
  const note = (exchange: Exchange): void => {
    stats.note(exchange);
    log({ event: 'request', ...exchange });
  };
  const broker = new Broker({ seal, egress, usage, trusted: new Set(options.trusted), log: note });
  const relays = new RelayServer({
    egress,
    broker,
    usage: { feed: usage, seal },
    stats: () => stats.export(),
    ...(version !== undefined && { version }),
    ...(limits && { limits }),
  });
  const close = async (): Promise<void> => {
    relays.close();
    usage.close();
    await broker.close();
  };
  return { relays, broker, usage, seal, stats, close };
}

/** Logs why the proxy does not connect: sandboxes only see that a connection ends. */
function withProxyLog(connections: Egress, log: (entry: object) => void): Egress {
  let loggedAt = Number.NEGATIVE_INFINITY;
  return {
    ...connections,
    connect: (target, signal) =>
      connections.connect(target, signal).catch((error: unknown) => {
        const { cause } = error as Error;
        if (cause instanceof ProxyError && performance.now() - loggedAt > PROXY_ERROR_MS) {
          loggedAt = performance.now();
          log({ event: 'proxy', message: cause.message });
        }
        throw error;
      }),
  };
}
