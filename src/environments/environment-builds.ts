import { Injectable, Logger } from '@nestjs/common';
import { storableText } from '../common/storable.js';
import { Sql } from '../database/sql.js';

/** A build counts as interrupted when nobody has renewed its record for this long. Seconds. */
export const LOST_SECONDS = 60;
const RENEW_MS = 15_000;
const MAX_ERROR = 1_000;

export const BUILD_STATUSES = ['building', 'ready', 'failed'] as const;

/** The last build of an environment's version, as clients see it. */
export interface EnvironmentBuild {
  status: (typeof BUILD_STATUSES)[number];
  startedAt: string;
  /** `null` while it goes on. */
  durationMs: number | null;
  /** Of a failed build: the command that failed and the end of its output. */
  error: string | null;
}

/** A version of an environment. */
export interface BuiltVersion {
  id: string;
  version: number;
}

// Several sessions may wait for one build: it began when the first of them did.
const BEGIN = {
  name: 'environment-builds-begin',
  text: `
    INSERT INTO environment_builds AS b (environment_id, version, status)
    SELECT id, $2, 'building' FROM environments WHERE id = $1
    ON CONFLICT (environment_id, version) DO UPDATE SET
      status = 'building', seen_at = now(), ended_at = NULL, error = NULL,
      started_at = CASE
        WHEN b.status = 'building' AND b.seen_at > now() - make_interval(secs => $3) THEN b.started_at
        ELSE now()
      END`,
};
const RENEW = {
  name: 'environment-builds-renew',
  text: `
    UPDATE environment_builds SET status = 'building', seen_at = now(), ended_at = NULL, error = NULL
    WHERE environment_id = $1 AND version = $2 AND status <> 'ready'`,
};
// One session's build may fail while another session waits for the lock, and then builds: what is there in the end counts.
const END = {
  name: 'environment-builds-end',
  text: `
    UPDATE environment_builds SET status = $3, ended_at = now(), error = $4
    WHERE environment_id = $1 AND version = $2
      AND status <> 'ready'`,
};
const LAST = {
  name: 'environment-builds-last',
  text: `
    SELECT status, started_at AS "startedAt", error,
           round(extract(epoch FROM ended_at - started_at) * 1000)::float8 AS "durationMs"
      FROM environment_builds
     WHERE environment_id = $1 AND version = $2
       AND (status <> 'building' OR seen_at > now() - make_interval(secs => $3))`,
};

/** Records when environments are built, and how that ends. A build is not held up by a record that cannot be written. */
@Injectable()
export class EnvironmentBuilds {
  private readonly logger = new Logger('EnvironmentBuilds');

  constructor(private readonly sql: Sql) {}

  /** The last build of a version; `null` if there was none, or if it was interrupted. */
  async last({ id, version }: BuiltVersion): Promise<EnvironmentBuild | null> {
    const [row] = await this.sql.query<EnvironmentBuild>(LAST, [id, version, LOST_SECONDS]);
    return row ?? null;
  }

  /**
   * Runs work that may build a version, and records the build.
   * @param work calls its argument when a build begins
   * @param describe what to tell clients about a failure, without secrets; `undefined` if the work was interrupted
   */
  async during<T>(
    of: BuiltVersion,
    work: (onBuild: () => void) => Promise<T>,
    describe: (error: unknown) => string | undefined,
  ): Promise<T> {
    let begun: Promise<void> | undefined;
    let renewing: NodeJS.Timeout | undefined;
    const onBuild = (): void => {
      begun ??= this.write(BEGIN, of, LOST_SECONDS);
      renewing ??= setInterval(() => void this.write(RENEW, of), RENEW_MS);
    };
    const end = async (status: 'ready' | 'failed', error: string | null): Promise<void> => {
      if (begun === undefined) return;
      await begun;
      await this.write(END, of, status, error);
    };
    try {
      const result = await work(onBuild);
      await end('ready', null);
      return result;
    } catch (error) {
      const message = describe(error);
      // Another worker takes over what was interrupted, or nobody renews the record any more.
      if (message !== undefined) await end('failed', storableText(message, MAX_ERROR));
      throw error;
    } finally {
      clearInterval(renewing);
    }
  }

  private async write(
    statement: { name: string; text: string },
    { id, version }: BuiltVersion,
    ...values: unknown[]
  ): Promise<void> {
    try {
      await this.sql.query(statement, [id, version, ...values]);
    } catch (error) {
      this.logger.warn(`The build of environment ${id} could not be recorded: ${String(error)}`);
    }
  }
}
