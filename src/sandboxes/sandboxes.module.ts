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
      useFactory: (config: AppConfig, sql: Sql): Promise<SandboxDriver> => makeDriver(config, sql),
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

async function makeDriver(config: AppConfig, sql: Sql): Promise<SandboxDriver> {
  const { driver, isolation, memoryBytes, diskBytes, processes } = config.sandbox;
  const limits = { memoryBytes, diskBytes, processes };
  const nest = new Logger('Sandbox');
  const logger = {
    warn: (message: string) => nest.warn(message),
    debug: (message: string) => nest.debug(message),
  };
  const gateways = gatewaysOf(config);
  switch (driver) {
    case 'local':
      return makeLocalDriver({
        stateDir: join(config.dataDir, 'sandboxes'),
        cacheDir: config.cacheDir,
        isolation,
        limits,
        gateways,
        logger,
      });
    case 'docker':
      return makeDockerDriver({
        ...config.sandbox.docker,
        // Several processes, on several hosts, are one installation when they share a database.
        installation: () => loadInstallationName(sql),
        limits,
        gateways,
        logger,
      });
    case 'kubernetes':
    case 'sprites':
      throw new Error(`SANDBOX_DRIVER: "${driver}" is not part of this build; use local or docker`);
  }
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
