import { join } from 'node:path';
import { Global, Logger, Module } from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { makeLocalDriver } from './local/make-local-driver.js';
import type { SandboxDriver } from './sandbox-driver.js';
import { loadHostName, SANDBOX_DRIVER, SandboxHost } from './sandbox-host.js';

/** Makes the driver that configuration chose. The only place that knows drivers by name. */
@Global()
@Module({
  providers: [
    {
      provide: SANDBOX_DRIVER,
      inject: [AppConfig],
      useFactory: (config: AppConfig): Promise<SandboxDriver> => makeDriver(config),
    },
    {
      provide: SandboxHost,
      inject: [AppConfig],
      useFactory: async (config: AppConfig) => new SandboxHost(await loadHostName(config.dataDir)),
    },
  ],
  exports: [SANDBOX_DRIVER, SandboxHost],
})
export class SandboxesModule {}

async function makeDriver(config: AppConfig): Promise<SandboxDriver> {
  const { driver, isolation, memoryBytes, diskBytes, processes } = config.sandbox;
  if (driver !== 'local') {
    throw new Error(`SANDBOX_DRIVER: "${driver}" is not part of this build; use local`);
  }
  const logger = new Logger('Sandbox');
  return makeLocalDriver({
    stateDir: join(config.dataDir, 'sandboxes'),
    cacheDir: config.cacheDir,
    isolation,
    limits: { memoryBytes, diskBytes, processes },
    gateways: Object.values(config.providers).flatMap(({ baseUrl }) => {
      if (baseUrl === undefined) return [];
      const { hostname, port, protocol } = new URL(baseUrl);
      return [
        {
          host: hostname.replace(/^\[|\]$/g, ''),
          port: Number(port) || (protocol === 'https:' ? 443 : 80),
        },
      ];
    }),
    logger: { warn: (message) => logger.warn(message), debug: (message) => logger.debug(message) },
  });
}
