import type { LoggerService } from '@nestjs/common';
import type { AppConfig } from './config/app-config.js';
import { lockDataDir } from './database/embedded/data-dir-lock.js';
import { startEmbeddedPostgres } from './database/embedded/embedded-postgres.js';

/** A database that this process may use until it stops it. */
export interface OpenDatabase {
  url: string;
  /** A service that starts on the same folder from now on waits instead of failing. */
  stopping(): void;
  stop(): Promise<void>;
}

/**
 * The configured database, or an own PostgreSQL in the data folder. Services that share a configured database may share
 * a data folder, too; an own one serves a single process.
 */
export async function openDatabase(
  config: AppConfig,
  logger: LoggerService,
): Promise<OpenDatabase> {
  if (config.databaseUrl !== undefined) {
    return { url: config.databaseUrl, stopping: () => undefined, stop: async () => undefined };
  }
  const lock = await lockDataDir(config.dataDir);
  try {
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
