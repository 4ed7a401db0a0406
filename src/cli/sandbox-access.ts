import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { AppConfig } from '../config/app-config.js';
import { ConfigModule } from '../config/config.module.js';
import {
  findInstallation,
  InstallationMismatch,
  mismatchOf,
  readDataFolder,
} from '../database/installation.js';
import { Sql } from '../database/sql.js';
import type { SandboxDriver } from '../sandboxes/driver/sandbox-driver.js';
import type { SandboxAccess } from '../sandboxes/lifecycle/sandbox-operations.js';
import { SANDBOX_DRIVER, SandboxHost } from '../sandboxes/sandbox-host.js';
import { SandboxesModule } from '../sandboxes/sandboxes.module.js';
import { Unreachable } from './command-line.js';

/** The service's sandbox module without the rest of the application. */
@Module({})
class SandboxesAlone {}

/** Rejects every query of a driver that needs a database. */
const NO_DATABASE: Pick<Sql, 'query' | 'transaction'> = {
  query: () => Promise.reject(new Unreachable('needs the database')),
  transaction: () => Promise.reject(new Unreachable('needs the database')),
};

/**
 * Runs `work` with the driver that a service on this host uses.
 * @param sql the database that the driver may read; `undefined` if none is available
 */
export async function withSandboxes<T>(
  config: AppConfig,
  sql: Sql | undefined,
  work: (access: SandboxAccess) => Promise<T>,
): Promise<T> {
  if (sql !== undefined) await requireSameInstallation(sql, config.dataDir);
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
    await context.close();
  }
}

/** Throws if the driver's sandboxes belong to another database. */
async function requireSameInstallation(sql: Sql, dataDir: string): Promise<void> {
  const record = await findInstallation(sql);
  if (record === undefined) return;
  const problem = await mismatchOf(sql, record, await readDataFolder(dataDir), dataDir);
  if (problem !== undefined) throw new InstallationMismatch(problem);
}
