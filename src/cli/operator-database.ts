import { EventEmitter2 } from '@nestjs/event-emitter';
import { DatabaseUrl, dataSourceOptions } from '../database/data-source.js';
import { Notifications } from '../database/notifications.js';
import { Sql } from '../database/sql.js';
import { Notifier } from '../event-log/log-notifications.js';
import { SessionOperations } from '../sessions/session-operations.js';
import type { Command } from 'commander';
import { DataSource } from 'typeorm';
import { OperatorActions } from '../audit/operator-audit.service.js';
import { looksLikeAccessToken } from '../auth/access-token.js';
import { ACCOUNT_ENTITIES, Accounts } from '../auth/accounts.js';
import type { AppConfig } from '../config/app-config.js';
import { findEmbeddedPostgres } from '../database/embedded/embedded-postgres.js';
import { migrate } from '../database/migrate.js';
import { resultOf, Unreachable, type CommandOutput } from './command-line.js';

/** How keys of model providers begin. */
const PROVIDER_KEY = /^(sk-|AIza)/;

/** What commands work with. */
export interface OperatorDatabase {
  readonly config: AppConfig;
  readonly url: string;
  readonly sql: Sql;
  readonly accounts: Accounts;
  readonly sessions: SessionOperations;
}

/**
 * The operations on sessions for operators. Their notifier is not started, because the command line sends notifications
 * but does not receive any.
 */
function operationsOn(sql: Sql): SessionOperations {
  const silent = new Notifications(new DatabaseUrl(''));
  return new SessionOperations(sql, new Notifier(new EventEmitter2(), silent));
}

/** The command's name with those of its groups, such as `user key set`. */
function nameOf(command: Command): string {
  const { parent } = command;
  return parent?.parent ? `${nameOf(parent)} ${command.name()}` : command.name();
}

function looksLikeSecret(text: string): boolean {
  return looksLikeAccessToken(text) || PROVIDER_KEY.test(text);
}

/** Runs a command's work on the database and records it in the audit log, whether it succeeds or fails. */
export async function audited<Output extends CommandOutput & { object?: string }>(
  command: Command,
  operator: { readonly name: string },
  { sql }: OperatorDatabase,
  subject: string | undefined,
  work: () => Promise<Output>,
): Promise<Output> {
  const record = (object: string | undefined, result: string) =>
    new OperatorActions(sql).record({
      operator: operator.name,
      action: nameOf(command),
      // An operator may pass a token instead of its id, or a key instead of a name; the log must not keep it.
      object: object === undefined || looksLikeSecret(object) ? null : object,
      result,
    });
  let output: Output;
  try {
    output = await work();
  } catch (error) {
    // If recording fails, too, report the command's own error.
    await record(subject, resultOf(error)).catch(() => undefined);
    throw error;
  }
  // Prints the output even if the audit entry fails: it may hold a token that is shown only once.
  await record(output.object ?? subject, 'done').catch((error: unknown) => {
    process.stderr.write(`warning: this command is missing in the audit log: ${String(error)}\n`);
  });
  return output;
}

/**
 * Finds the database: `DATABASE_URL`, or the PostgreSQL of the service that runs on the data folder.
 * @throws Unreachable when there is neither.
 */
export async function resolveDatabase(config: AppConfig): Promise<string> {
  if (config.databaseUrl !== undefined) return config.databaseUrl;
  const running = await findEmbeddedPostgres(config.dataDir);
  if (running) return running.url;
  throw new Unreachable(
    `No service is running on ${config.dataDir}: start it, set DATA_DIR to its data folder, or set DATABASE_URL`,
  );
}

/** Runs `work` on the migrated database, and closes what it opened. */
export async function withDatabase<T>(
  config: AppConfig,
  work: (database: OperatorDatabase) => Promise<T>,
): Promise<T> {
  const url = await resolveDatabase(config);
  await migrate(url);
  return withUnmigratedDatabase(config, url, work);
}

/** Like {@link withDatabase}, but does not migrate, for commands that must not change anything. */
export async function withUnmigratedDatabase<T>(
  config: AppConfig,
  url: string,
  work: (database: OperatorDatabase) => Promise<T>,
): Promise<T> {
  const dataSource = new DataSource({
    ...dataSourceOptions({ url, poolSize: 2, applicationName: 'agent-session-service cli' }),
    entities: ACCOUNT_ENTITIES,
  });
  await dataSource.initialize();
  try {
    const sql = new Sql(dataSource);
    const accounts = new Accounts(dataSource);
    return await work({ config, url, sql, accounts, sessions: operationsOn(sql) });
  } finally {
    await dataSource.destroy();
  }
}
