import { mkdir } from 'node:fs/promises';
import { type INestApplication, Logger } from '@nestjs/common';
import { Accounts, type IssuedToken } from './auth/accounts.js';
import { type AppConfig, loadConfig } from './config/app-config.js';
import type { Environment } from './config/parse.js';
import { createApp } from './create-app.js';
import { migrate } from './database/migrate.js';
import { Readiness } from './health/readiness.js';
import { LineRedactor } from './logging/line-redactor.js';
import { createLogger } from './logging/service-logger.js';
import { openDatabase } from './open-database.js';
import { onStopSignal } from './stop-signals.js';
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
  const tracing = await tracingOf(config);
  const database = await openDatabase(config, logger);
  let app: INestApplication | undefined;
  try {
    await migrate(database.url).catch((error: unknown) => {
      throw new Error(`The database cannot be used: ${reasonOf(error)}`, { cause: error });
    });
    app = await createApp(config, database.url, { tracing });
    // What was logged until here is of interest only where this point is reached: else there is one line that says why.
    app.useLogger(logger);
    app.flushLogs();
    await app.listen(config.port, config.host);
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
