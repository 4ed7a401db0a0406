import { join } from 'node:path';
import { Global, Inject, Logger, Module, type OnApplicationShutdown } from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { modelGatewaysOf } from '../config/gateway-config.js';
import { ensureInstallation } from '../database/installation.js';
import { Sql } from '../database/sql.js';
import { Metrics } from '../metrics/metrics.js';
import { RemoteGateway } from '../gateway/network/remote-gateway.js';
import { type SharedGatewayConfig, sharedGatewayConfig } from '../gateway/gateway-config.js';
import { GRANT_KEYS, KeyRing } from '../secrets/key-ring.js';
import { type ConfiguredLimits, sandboxLimits } from '../supervisor/sandbox-options.js';
import { LimitLog } from './limit-log.js';
import type { SandboxDriver } from './driver/sandbox-driver.js';
import { SandboxRoom } from './sandbox-room.js';
import { UnknownStatesReport } from './driver/unknown-states-report.js';
import { loadHostName, SANDBOX_DRIVER, SandboxHost } from './sandbox-host.js';
import { SharedPreparation } from './shared-preparation.service.js';

/** Owns the driver that configuration chose: makes and closes it. The only place that knows drivers by name. */
@Global()
@Module({
  providers: [
    LimitLog,
    {
      provide: SANDBOX_DRIVER,
      // Commands that only remove sandboxes need neither keys nor metrics.
      inject: [
        AppConfig,
        Sql,
        { token: KeyRing, optional: true },
        { token: Metrics, optional: true },
      ],
      useFactory: makeDriver,
    },
    SharedPreparation,
    {
      provide: SandboxHost,
      inject: [AppConfig],
      useFactory: async (config: AppConfig) =>
        new SandboxHost(
          config.sandbox.driver === 'local' ? await loadHostName(config.dataDir) : null,
        ),
    },
    SandboxRoom,
  ],
  exports: [SANDBOX_DRIVER, SandboxHost, SandboxRoom],
})
export class SandboxesModule implements OnApplicationShutdown {
  constructor(@Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver) {}

  /**
   * The last phase of a shutdown. The driver's users stop in the phase before: the worker, the warm pool, the reaper and
   * the preparation wait there for what they have begun, each up to its limit.
   */
  async onApplicationShutdown(): Promise<void> {
    await this.driver.close();
  }
}

/** What every driver is made with. */
interface DriverParts {
  config: AppConfig;
  sql: Sql;
  gatewayConfig: SharedGatewayConfig;
  limits: ConfiguredLimits;
  gateways: { host: string; port: number }[];
  logger: { warn(message: string): void; debug(message: string): void };
  unknownStates: UnknownStatesReport;
}

/**
 * The drivers that there are. A suite of its own holds each to the contract; one without it fails the tests. Each is
 * loaded only where it is used: the client of Docker's engine alone has 150 modules.
 */
export const DRIVERS = {
  local: async ({
    config,
    gatewayConfig,
    limits,
    gateways,
    logger,
    unknownStates,
  }: DriverParts): Promise<SandboxDriver> => {
    const { makeLocalDriver } = await import('./driver/local/make-local-driver.js');
    return makeLocalDriver({
      stateDir: join(config.dataDir, 'sandboxes'),
      gatewayDir: join(config.dataDir, 'gateway'),
      gatewayConfig,
      cacheDir: config.cacheDir,
      isolation: config.sandbox.isolation,
      cpus: config.sandbox.cpus,
      layers: { most: config.sandbox.builds.kept, seconds: config.sandbox.builds.keptSeconds },
      buildLimitMs: config.sandbox.builds.limitMs,
      limits,
      gateways,
      network: config.network,
      logger,
      unknownStates,
    });
  },
  docker: async ({
    config,
    sql,
    gatewayConfig,
    limits,
    gateways,
    logger,
    unknownStates,
  }: DriverParts): Promise<SandboxDriver> => {
    const { host, certPath, ...docker } = config.sandbox.docker;
    const { DockerSandboxDriver } = await import('./driver/docker/docker-sandbox-driver.js');
    return new DockerSandboxDriver({
      ...docker,
      engine: { host, ...(certPath !== undefined && { certPath }) },
      cache: { images: config.sandbox.builds.kept, seconds: config.sandbox.builds.keptSeconds },
      buildLimitMs: config.sandbox.builds.limitMs,
      cpus: config.sandbox.cpus,
      // Several processes, on several hosts, are one installation when they share a database.
      installation: async () => (await ensureInstallation(sql)).id,
      gatewayConfig,
      limits: sandboxLimits(limits),
      gateways,
      logger,
      unknownStates,
    });
  },
  kubernetes: async ({
    config,
    sql,
    gatewayConfig: { grantKeys },
    limits,
    gateways,
    logger,
    unknownStates,
  }: DriverParts): Promise<SandboxDriver> => {
    const { gatewayPods, ...kubernetes } = config.sandbox.kubernetes;
    const { url, workersUrl } = config.gateway;
    const { certificates, privateHosts } = config.network;
    const { image, runtime } = config.sandbox.docker;
    const { KubernetesSandboxDriver } =
      await import('./driver/kubernetes/kubernetes-sandbox-driver.js');
    return new KubernetesSandboxDriver({
      ...kubernetes,
      image,
      runtimeClass: runtime,
      cpus: config.sandbox.cpus,
      installation: async () => (await ensureInstallation(sql)).id,
      ...(url !== undefined && {
        gateway: {
          url,
          pods: gatewayPods,
          // A command has no keys, and so no secrets for sandboxes.
          ...(grantKeys.length > 0 && {
            remote: new RemoteGateway({ url, workersUrl, grantKeys, certificates }),
          }),
        },
      }),
      gateways,
      privateHosts,
      limits: sandboxLimits(limits),
      logger,
      unknownStates,
    });
  },
  sprites: async ({
    config,
    sql,
    gatewayConfig: { grantKeys },
    limits,
    logger,
    unknownStates,
  }: DriverParts): Promise<SandboxDriver> => {
    const { token = '', baseUrl, prefix } = config.sandbox.sprites;
    const { url, workersUrl } = config.gateway;
    const { certificates } = config.network;
    const hasKeys = Object.values(config.providers).some(({ apiKey }) => apiKey !== undefined);
    const { SpritesSandboxDriver } = await import('./driver/sprites/sprites-sandbox-driver.js');
    return new SpritesSandboxDriver({
      access: { token, baseUrl },
      prefix,
      installation: async () => (await ensureInstallation(sql)).id,
      ...(url !== undefined && {
        gateway: {
          url,
          // A command has no keys, and so no secrets for sandboxes.
          ...(grantKeys.length > 0 && {
            remote: new RemoteGateway({ url, workersUrl, grantKeys, certificates }),
          }),
        },
      }),
      ...(url === undefined &&
        hasKeys && { needsGateway: 'sprites get no keys of model providers without a gateway' }),
      limits: sandboxLimits(limits),
      logger,
      unknownStates,
    });
  },
};

async function makeDriver(
  config: AppConfig,
  sql: Sql,
  keys?: KeyRing,
  metrics?: Metrics,
): Promise<SandboxDriver> {
  const { driver, memoryBytes, diskBytes, processes } = config.sandbox;
  const nest = new Logger('Sandbox');
  const gateways = modelGatewaysOf(config);
  const made = await DRIVERS[driver]({
    config,
    sql,
    gatewayConfig: sharedGatewayConfig({
      grantKeys: keys?.derive(GRANT_KEYS) ?? [],
      gateways,
      network: config.network,
    }),
    limits: { memoryBytes, diskBytes, processes },
    gateways,
    unknownStates: new UnknownStatesReport(metrics),
    logger: {
      warn: (message) => nest.warn(message),
      debug: (message) => nest.debug(message),
    },
  });
  metrics?.include(async () => (await made.gatewayMetrics?.()) ?? []);
  metrics?.include(async () => made.metrics?.() ?? []);
  return made;
}
