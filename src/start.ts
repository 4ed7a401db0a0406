import { mkdir } from 'node:fs/promises';
import { ConsoleLogger, type INestApplication, Logger, type LogLevel } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';
import { createHttpAdapter } from './common/http/adapter.js';
import { KnownRoutes } from './common/http/known-routes.js';
import { type AppConfig, loadConfig } from './config/app-config.js';
import type { Environment } from './config/parse.js';
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
    announce(await app.getUrl());
    onStopSignal(async () => {
      await app.close();
      await database.stop();
    });
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

async function openDatabase(config: AppConfig): Promise<{ url: string; stop(): Promise<void> }> {
  if (config.databaseUrl === undefined) throw new Error('DATABASE_URL is not set');
  return { url: config.databaseUrl, stop: async () => undefined };
}

function createLogger(config: AppConfig): ConsoleLogger {
  const levels: LogLevel[] = ['fatal', 'error', 'warn', 'log', 'debug', 'verbose'];
  return new ConsoleLogger({
    json: !process.stdout.isTTY,
    colors: process.stdout.isTTY,
    logLevels: levels.slice(0, levels.indexOf(config.logLevel) + 1),
  });
}

function announce(url: string): void {
  new Logger('Service').log(`Listening on ${url}`);
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
