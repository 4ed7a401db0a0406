import type { Command, OptionValues } from 'commander';
import { DataSource } from 'typeorm';
import { OperatorActions } from '../audit/operator-actions.repository.js';
import { looksLikeAccessToken } from '../auth/access-token.js';
import { ACCOUNT_ENTITIES } from '../auth/accounts.js';
import type { AppConfig } from '../config/app-config.js';
import { dataSourceOptions } from '../database/data-source.js';
import { findEmbeddedPostgres } from '../database/embedded/embedded-postgres.js';
import { migrate } from '../database/migrate.js';
import { Sql } from '../database/sql.js';
import { runs } from './command-line.js';
import { resultOf, Unreachable } from './exit-codes.js';
import type { CommandOutput } from './output.js';

/** Who calls, and with which configuration; read when a command needs it, so that `--help` works with a bad one, too. */
export interface Operator {
  readonly name: string;
  readConfig(): AppConfig;
}

/** What a command works with. */
export interface OperatorDatabase {
  readonly config: AppConfig;
  readonly url: string;
  readonly dataSource: DataSource;
  readonly sql: Sql;
}

type DatabaseWork<Output> = (
  database: OperatorDatabase,
  options: OptionValues,
  ...args: string[]
) => Promise<Output>;

/** Ends the definition of a command that only looks into the database. */
export function reads(
  command: Command,
  operator: Operator,
  work: DatabaseWork<CommandOutput>,
): void {
  runs(command, (options, ...args) =>
    withDatabase(operator.readConfig(), (database) => work(database, options, ...args)),
  );
}

/**
 * Ends the definition of a command that changes something: done or refused, it leaves a line in the audit log. What it
 * was about is its first argument, unless its output says it.
 */
export function changes(
  command: Command,
  operator: Operator,
  work: DatabaseWork<CommandOutput & { object?: string }>,
): void {
  runs(command, (options, ...args) =>
    withDatabase(operator.readConfig(), async (database) => {
      const record = (object: string | undefined, result: string) =>
        new OperatorActions(database.sql).record({
          operator: operator.name,
          action: [command.parent?.name(), command.name()].join(' '),
          // Whoever gives a token where its id belongs has made a mistake, and the log keeps what it is told.
          object: object === undefined || looksLikeAccessToken(object) ? null : object,
          result,
        });
      try {
        const output = await work(database, options, ...args);
        await record(output.object ?? args[0], 'done');
        return output;
      } catch (error) {
        // Of the two failures, the command's own is the one to tell.
        await record(args[0], resultOf(error)).catch(() => undefined);
        throw error;
      }
    }),
  );
}

/**
 * Where the database is: `DATABASE_URL`, or the PostgreSQL of the service that runs on the data folder.
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

/** The same for who must not change anything. */
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
    return await work({ config, url, dataSource, sql: new Sql(dataSource) });
  } finally {
    await dataSource.destroy();
  }
}
