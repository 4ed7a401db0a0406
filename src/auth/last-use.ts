import { type BeforeApplicationShutdown, Injectable, Logger } from '@nestjs/common';
import { Clock } from '../common/clock.js';
import { isDatabaseUnavailable } from '../common/database-unavailable.js';
import { TokensRepository } from './tokens.repository.js';

const INTERVAL_MS = 60_000;
const REMEMBERED = 10_000;

/** Notes when a token was last used: beside the request, never on its path, at most once a minute for each token. */
@Injectable()
export class LastUse implements BeforeApplicationShutdown {
  private readonly logger = new Logger(LastUse.name);
  private readonly notedAt = new Map<string, number>();
  private readonly writes = new Set<Promise<void>>();

  constructor(
    private readonly tokens: TokensRepository,
    private readonly clock: Clock,
  ) {}

  note(tokenId: string): void {
    const now = this.clock.monotonic();
    const last = this.notedAt.get(tokenId);
    if (last !== undefined && now - last < INTERVAL_MS) return;
    this.notedAt.delete(tokenId);
    this.notedAt.set(tokenId, now);
    if (this.notedAt.size > REMEMBERED) {
      this.notedAt.delete(this.notedAt.keys().next().value as string);
    }
    const write = this.tokens
      .touchUnscoped(tokenId)
      .catch((error: unknown) => {
        this.notedAt.delete(tokenId);
        // That the database is away is said by the request itself.
        if (!isDatabaseUnavailable(error)) this.logger.warn(`Last use not noted: ${String(error)}`);
      })
      .finally(() => this.writes.delete(write));
    this.writes.add(write);
  }

  /** Before the pool closes. */
  async beforeApplicationShutdown(): Promise<void> {
    await Promise.all(this.writes);
  }
}
