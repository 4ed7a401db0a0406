import { type BeforeApplicationShutdown, Injectable, Logger } from '@nestjs/common';
import { Interval } from '@nestjs/schedule';
import { isDatabaseUnavailable } from '../common/database-errors.js';
import { Sql } from '../database/sql.js';
import { StreamRegistry } from './stream-registry.service.js';

/** A revocation must end streams within 5 seconds, even if the look-up is slow. */
const INTERVAL_MS = 2_000;

const INVALID = {
  name: 'streams-invalid-tokens',
  timeoutMs: INTERVAL_MS,
  text: `
    SELECT asked.id FROM unnest($1::uuid[]) AS asked (id)
      LEFT JOIN access_tokens t ON t.id = asked.id AND t.revoked_at IS NULL
        AND (t.expires_at IS NULL OR t.expires_at > now())
     WHERE t.id IS NULL`,
};

/**
 * Ends streams whose token was revoked or has expired. Runs one statement every two seconds for all streams of the
 * process, which contains each token once, and none while no stream is open.
 */
@Injectable()
export class StreamTokens implements BeforeApplicationShutdown {
  private readonly logger = new Logger(StreamTokens.name);
  private checking: Promise<void> | undefined;

  constructor(
    private readonly registry: StreamRegistry,
    private readonly sql: Sql,
  ) {}

  @Interval(INTERVAL_MS)
  endInvalid(): void {
    this.checking ??= this.check().finally(() => {
      this.checking = undefined;
    });
  }

  async beforeApplicationShutdown(): Promise<void> {
    await this.checking;
  }

  private async check(): Promise<void> {
    const tokens = this.registry.tokens();
    if (tokens.length === 0) return;
    try {
      const invalid = await this.sql.query<{ id: string }>(INVALID, [tokens]);
      if (invalid.length > 0) this.registry.endOf(new Set(invalid.map(({ id }) => id)));
    } catch (error) {
      // Without the database the check is impossible. Streams stay open during an outage.
      if (!isDatabaseUnavailable(error))
        this.logger.warn(`The tokens of open streams could not be checked: ${String(error)}`);
    }
  }
}
