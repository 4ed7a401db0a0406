import { mkdir } from 'node:fs/promises';
import { ConsoleLogger, type INestApplication, Logger, type LogLevel } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';
import { Accounts, type IssuedToken } from './auth/accounts.js';
import { createHttpAdapter } from './common/http/adapter.js';
import { KnownRoutes } from './common/http/known-routes.js';
import { type AppConfig, loadConfig } from './config/app-config.js';
import type { Environment } from './config/parse.js';
import { lockDataDir } from './database/embedded/data-dir-lock.js';
import { startEmbeddedPostgres } from './database/embedded/embedded-postgres.js';
import { migrate } from './database/migrate.js';

const SHUTDOWN_LIMIT_MS = 20_000;

/** Starts the process in its role and stays until a signal. @throws Error with one line for the operator. */
export async function start(env: Environment): Promise<void> {
  const config = loadConfig(env);
  await mkdir(config.dataDir, { recursive: true, mode: 0o755 });
  const database = await openDatabase(config);
  try {
    await migrate(database.url);
    const app = await createApp(config, database.url);
    await app.listen(config.port, config.host);
    const firstToken = await app.get(Accounts).ensureFirstUser();
    onStopSignal(async () => {
      database.stopping();
      try {
        await app.close();
      } finally {
        await database.stop();
      }
    });
    announce(await app.getUrl(), firstToken);
  } catch (error) {
    await database.stop();
    throw error;
  }
}

/** Builds the application without listening. */
export async function createApp(config: AppConfig, databaseUrl: string): Promise<INestApplication> {
  const routes = new KnownRoutes();
  const app = await NestFactory.create(
    AppModule.of({ config, databaseUrl, routes }),
    createHttpAdapter({ routes, bodyLimitBytes: config.bodyLimitBytes }),
    { bodyParser: false, abortOnError: false, logger: createLogger(config) },
  );
  app.setGlobalPrefix(config.apiPrefix, {
    exclude: ['healthz', 'readyz', 'openapi.json', 'docs'],
  });
  return app;
}

/**
 * The configured database, or an own PostgreSQL in the data folder. Services that share a configured database may share
 * a data folder, too; an own one serves a single process.
 */
async function openDatabase(config: AppConfig): Promise<OpenDatabase> {
  if (config.databaseUrl !== undefined) {
    return { url: config.databaseUrl, stopping: () => undefined, stop: async () => undefined };
  }
  const lock = await lockDataDir(config.dataDir);
  try {
    const logger = createLogger(config);
    const postgres = await startEmbeddedPostgres({
      dataDir: config.dataDir,
      log: (line) => logger.log(line, 'Database'),
    });
    return {
      url: postgres.url,
      stopping: () => lock.stopping(),
      stop: async () => {
        await postgres.stop();
        await lock.release();
      },
    };
  } catch (error) {
    await lock.release();
    throw error;
  }
}

interface OpenDatabase {
  url: string;
  /** A service that starts on the same folder from now on waits instead of failing. */
  stopping(): void;
  stop(): Promise<void>;
}

function createLogger(config: AppConfig): ConsoleLogger {
  const levels: LogLevel[] = ['fatal', 'error', 'warn', 'log', 'debug', 'verbose'];
  return new ConsoleLogger({
    json: !process.stdout.isTTY,
    colors: process.stdout.isTTY,
    logLevels: levels.slice(0, levels.indexOf(config.logLevel) + 1),
  });
}

function announce(url: string, firstToken: IssuedToken | undefined): void {
  new Logger('Service').log(`Listening on ${url}`);
  if (firstToken) {
    // Not through the logger: this is the one time that the token is shown, and logs are kept.
    process.stdout.write(
      `\nThe first user is "${firstToken.userName}". Their access token, shown only now:\n\n` +
        `  ${firstToken.token}\n\n`,
    );
  }
}

/** The first signal stops in order and in bounded time; a second one stops at once. */
function onStopSignal(stop: () => Promise<void>): void {
  let stopping = false;
  const handle = (): void => {
    if (stopping) process.exit(1);
    stopping = true;
    setTimeout(() => process.exit(1), SHUTDOWN_LIMIT_MS).unref();
    stop().then(
      () => process.exit(0),
      (error: unknown) => {
        new Logger('Service').error(error);
        process.exit(1);
      },
    );
  };
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, handle);
  // Started by a wrapper over IPC: when the wrapper is gone, nobody else will stop this process.
  process.on('disconnect', handle);
}
