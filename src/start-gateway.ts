import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type LoggerService, Logger } from '@nestjs/common';
import type { AppConfig } from './config/app-config.js';
import { modelGatewaysOf } from './config/gateway-config.js';
import { sharedGatewayConfig } from './gateway/gateway-config.js';
import { openGatewayService } from './gateway/gateway-service.js';
import { NetworkListener } from './gateway/network/network-listener.js';
import { Metrics } from './metrics/metrics.js';
import { MetricsServer } from './metrics/metrics.module.js';
import { GRANT_KEYS } from './secrets/key-ring.js';
import { loadKeyRing } from './secrets/secrets.module.js';

const DRAIN_POLL_MS = 250;

/**
 * The role `gateway`: serves sandboxes on other machines. Needs no database: it opens grants with the keys, and workers
 * fetch the usage. Stays until a signal.
 */
export async function startGateway(config: AppConfig, logger: LoggerService): Promise<void> {
  Logger.overrideLogger(logger);
  const folder = join(config.dataDir, 'gateway');
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const grantKeys = (await loadKeyRing(config)).derive(GRANT_KEYS);
  const service = await openGatewayService({
    ...sharedGatewayConfig({
      grantKeys,
      gateways: modelGatewaysOf(config),
      network: config.network,
    }),
    folder,
    limits: NETWORK_LIMITS,
    log: (entry) => void process.stdout.write(`${JSON.stringify(entry)}\n`),
  });
  let isStopping = false;
  const listener = new NetworkListener({
    relays: service.relays,
    seal: service.seal,
    tls: config.gateway.tls,
    problem: () => {
      if (isStopping) return 'The gateway is shutting down';
      return service.usage.isFull ? 'No worker fetches the usage that this gateway counts' : null;
    },
  });
  const metrics = new Metrics(config);
  metrics.include(async () => service.stats.export());
  metrics.gauge(
    'gateway_connections',
    'Connections of sandboxes to this gateway',
    () => listener.relayConnections,
  );
  const metricsServer = new MetricsServer(metrics, config);
  await metricsServer.onApplicationBootstrap();
  const port = await listener.listen(config.gateway.port, config.host);
  const scheme = config.gateway.tls === undefined ? 'http' : 'https';
  new Logger('Gateway').log(`Listening on ${scheme}://${config.host}:${port}`);

  /** Waits until the connections of agents have ended and workers have fetched the usage, up to the limit. */
  const stop = async (): Promise<void> => {
    isStopping = true;
    listener.drain();
    const end = performance.now() + config.gateway.drainSeconds * 1000;
    while (performance.now() < end && !isDone()) await delay(DRAIN_POLL_MS);
    listener.close();
    metricsServer.onApplicationShutdown();
    await service.close();
  };
  const isDone = (): boolean => listener.relayConnections === 0 && service.usage.isEmpty;
  let stopping: Promise<void> | undefined;
  const handle = (): void => {
    if (stopping !== undefined) process.exit(1);
    stopping = stop().then(() => process.exit(0));
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, handle);
}

/** As for one machine, but of all machines. */
const NETWORK_LIMITS = { each: 320, all: 10_000, waitingBytes: 256 * 2 ** 20 };
