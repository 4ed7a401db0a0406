import { join } from 'node:path';
import { Global, Logger, Module } from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { Sql } from '../database/sql.js';
import { makeDockerDriver } from './docker/make-docker-driver.js';
import { loadInstallationName } from './installation-name.js';
import { makeLocalDriver } from './local/make-local-driver.js';
import type { SandboxDriver } from './sandbox-driver.js';
import { loadHostName, SANDBOX_DRIVER, SandboxHost } from './sandbox-host.js';

/** Makes the driver that configuration chose. The only place that knows drivers by name. */
@Global()
@Module({
  providers: [
    {
      provide: SANDBOX_DRIVER,
      inject: [AppConfig, Sql],
      useFactory: makeDriver,
    },
    {
      provide: SandboxHost,
      inject: [AppConfig],
      useFactory: async (config: AppConfig) =>
        new SandboxHost(
          config.sandbox.driver === 'local' ? await loadHostName(config.dataDir) : null,
        ),
    },
  ],
  exports: [SANDBOX_DRIVER, SandboxHost],
})
export class SandboxesModule {}

/** What every driver is made with. */
interface DriverParts {
  config: AppConfig;
  sql: Sql;
  limits: { memoryBytes: number; diskBytes: number; processes: number };
  gateways: { host: string; port: number }[];
  logger: { warn(message: string): void; debug(message: string): void };
}

/** The drivers that there are. A suite of its own holds each to the contract; one without it fails the tests. */
export const DRIVERS = {
  local: ({ config, limits, gateways, logger }: DriverParts): Promise<SandboxDriver> =>
    makeLocalDriver({
      stateDir: join(config.dataDir, 'sandboxes'),
      cacheDir: config.cacheDir,
      isolation: config.sandbox.isolation,
      limits,
      gateways,
      logger,
    }),
  docker: async ({ config, sql, limits, gateways, logger }: DriverParts): Promise<SandboxDriver> =>
    makeDockerDriver({
      ...config.sandbox.docker,
      // Several processes, on several hosts, are one installation when they share a database.
      installation: () => loadInstallationName(sql),
      limits,
      gateways,
      logger,
    }),
};

async function makeDriver(config: AppConfig, sql: Sql): Promise<SandboxDriver> {
  const { driver, memoryBytes, diskBytes, processes } = config.sandbox;
  if (driver !== 'local' && driver !== 'docker') {
    const there = Object.keys(DRIVERS).join(' or ');
    throw new Error(`SANDBOX_DRIVER: "${driver}" is not part of this build; use ${there}`);
  }
  const nest = new Logger('Sandbox');
  return DRIVERS[driver]({
    config,
    sql,
    limits: { memoryBytes, diskBytes, processes },
    gateways: gatewaysOf(config),
    logger: {
      warn: (message) => nest.warn(message),
      debug: (message) => nest.debug(message),
    },
  });
}

/** The addresses that the operator has put in place of model providers' own. */
function gatewaysOf({ providers }: AppConfig): { host: string; port: number }[] {
  return Object.values(providers).flatMap(({ baseUrl }) => {
    if (baseUrl === undefined) return [];
    const { hostname, port, protocol } = new URL(baseUrl);
    return [
      {
        host: hostname.replace(/^\[|\]$/g, ''),
        port: Number(port) || (protocol === 'https:' ? 443 : 80),
      },
    ];
  });
}
