import { mkdir } from 'node:fs/promises';
import { type INestApplication, Logger } from '@nestjs/common';
import { Accounts, type IssuedToken } from './auth/accounts.js';
import { type AppConfig, loadConfig } from './config/app-config.js';
import type { Environment } from './config/parse.js';
import { createApp } from './create-app.js';
import { createDataSource } from './database/data-source.js';
import { joinInstallation, requireOwnCluster } from './database/installation.js';
import { migrate, openDatabase } from './database/migrate.js';
import { Sql } from './database/sql.js';
import { startGateway } from './start-gateway.js';
import { Readiness } from './health/health.controller.js';
import { Worker } from './turns/worker.service.js';
import { LineRedactor, createLogger } from './logging/service-logger.js';
import { Tracing } from './tracing/tracing.js';

/** Starts the process in its role and stays until a signal. @throws Error with one line for the operator. */
export async function start(env: Environment): Promise<void> {
  const config = loadConfig(env);
  const logger = await createLogger({
    level: config.logLevel,
    format: config.logFormat ?? (process.stdout.isTTY ? 'pretty' : 'json'),
    redactor: new LineRedactor(secretsOf(config)),
  });
  await mkdir(config.dataDir, { recursive: true, mode: 0o755 });
  if (config.role === 'gateway') return startGateway(config, logger);
  const tracing = await tracingOf(config);
  if (config.databaseUrl === undefined) await requireOwnCluster(config.dataDir);
  const database = await openDatabase(config, { log: (line) => logger.log(line, 'Database') });
  let app: INestApplication | undefined;
  try {
    await migrate(database.url).catch((error: unknown) => {
      throw new Error(`The database cannot be used: ${reasonOf(error)}`, { cause: error });
    });
    await join(database.url, config.dataDir);
    app = await createApp(config, database.url, { tracing });
    // What was logged until here is of interest only where this point is reached: else there is one line that says why.
    app.useLogger(logger);
    app.flushLogs();
    if (config.role === 'worker') dependOnWorker(app);
    await app.listen(config.port, config.host).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EADDRINUSE') throw error;
      throw new Error(`Port ${config.port} of ${config.host} is in use: set PORT to a free one`, {
        cause: error,
      });
    });
    // Who runs a worker does not look for a token in its output.
    const firstToken =
      config.role === 'worker' ? undefined : await app.get(Accounts).ensureFirstUser();
    const running = app;
    onStopSignal(async () => {
      database.stopping();
      // Before anything else ends: whoever balances requests sends no more.
      running.get(Readiness).drain();
      try {
        await running.close();
      } finally {
        await tracing.stop();
        await database.stop();
      }
    });
    announce(await app.getUrl(), firstToken);
  } catch (error) {
    await app?.close().catch(() => undefined);
    await database.stop();
    throw error;
  }
}

/** Before anything can touch a sandbox. */
async function join(databaseUrl: string, dataDir: string): Promise<void> {
  const dataSource = createDataSource({ url: databaseUrl, poolSize: 1 });
  await dataSource.initialize();
  try {
    await joinInstallation(new Sql(dataSource), dataDir);
  } finally {
    await dataSource.destroy();
  }
}

/** node-postgres tries every address of a name, and then says nothing but that all failed. */
function reasonOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(reasonOf).join(', ');
  return error instanceof Error ? error.message : String(error);
}

/** The SDK is only loaded where traces are wanted. */
async function tracingOf({ tracing }: AppConfig): Promise<Tracing> {
  if (!tracing) return Tracing.off;
  const { startTracing } = await import('./tracing/open-telemetry.js');
  return startTracing(tracing);
}

/** Everything in the configuration that must not show in a log. */
function secretsOf(config: AppConfig): (string | undefined)[] {
  const { providers, encryptionKeys, databaseUrl, tracing } = config;
  const password = databaseUrl === undefined ? undefined : new URL(databaseUrl).password;
  return [
    ...Object.values(providers).map(({ apiKey }) => apiKey),
    ...(encryptionKeys?.split(',').map((key) => key.split(':')[1]?.trim()) ?? []),
    password,
    ...(tracing?.secrets ?? []),
  ];
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

/**
 * Makes readiness of a pure worker depend on its ability to make sandboxes. A process that also answers requests is
 * ready in any case.
 */
function dependOnWorker(app: INestApplication): void {
  const worker = app.get(Worker);
  app
    .get(Readiness)
    .dependOn(() =>
      worker.problem === null ? null : `The worker cannot make sandboxes: ${worker.problem}`,
    );
}

const SHUTDOWN_LIMIT_MS = 20_000;

/** Who signals a whole process group signals npm, too, which passes it on: that is one request to stop, not two. */
const SAME_SIGNAL_MS = 500;

/** The first signal stops in order and in bounded time; a second one stops at once. */
export function onStopSignal(stop: () => Promise<void>): void {
  let stoppingSince: number | undefined;
  const handle = (): void => {
    if (stoppingSince !== undefined) {
      if (performance.now() - stoppingSince < SAME_SIGNAL_MS) return;
      process.exit(1);
    }
    stoppingSince = performance.now();
    setTimeout(() => {
      new Logger('Service').error(`Not stopped within ${SHUTDOWN_LIMIT_MS / 1000} s, ending`);
      process.exit(1);
    }, SHUTDOWN_LIMIT_MS).unref();
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
