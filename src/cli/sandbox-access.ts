import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { AppConfig } from '../config/app-config.js';
import { ConfigModule } from '../config/config.module.js';
import { Sql } from '../database/sql.js';
import type { SandboxPlace } from '../runner/sandboxes.repository.js';
import type { SandboxDriver } from '../sandboxes/sandbox-driver.js';
import { SANDBOX_DRIVER, SandboxHost } from '../sandboxes/sandbox-host.js';
import { SandboxesModule } from '../sandboxes/sandboxes.module.js';
import { Unreachable } from './exit-codes.js';

/** The configured driver, and where its sandboxes are. */
export interface SandboxAccess {
  driver: SandboxDriver;
  place: SandboxPlace;
}

/** The part of the service that makes sandboxes, without the rest. */
@Module({})
class SandboxesAlone {}

/** A driver that wants the database finds out that it is not there. */
const NO_DATABASE: Pick<Sql, 'query' | 'transaction'> = {
  query: () => Promise.reject(new Unreachable('needs the database')),
  transaction: () => Promise.reject(new Unreachable('needs the database')),
};

/**
 * Runs `work` with the configured driver, as a service on this host would have it.
 * @param sql what a driver keeps in the database is read from there; `undefined` where there is none at hand.
 */
export async function withSandboxes<T>(
  config: AppConfig,
  sql: Sql | undefined,
  work: (access: SandboxAccess) => Promise<T>,
): Promise<T> {
  const context = await NestFactory.createApplicationContext(
    {
      module: SandboxesAlone,
      global: true,
      imports: [ConfigModule.of(config), SandboxesModule],
      providers: [{ provide: Sql, useValue: sql ?? NO_DATABASE }],
      exports: [Sql],
    },
    { logger: false, abortOnError: false },
  );
  const driver = context.get<SandboxDriver>(SANDBOX_DRIVER);
  try {
    return await work({
      driver,
      place: { driver: driver.name, host: context.get(SandboxHost).name },
    });
  } finally {
    await driver.close();
    await context.close();
  }
}
