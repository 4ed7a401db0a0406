import {
  type BeforeApplicationShutdown,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { SchedulerRegistry } from '@nestjs/schedule';
import { isDatabaseUnavailable } from '../common/database-errors.js';
import { QueuePositions } from '../sessions/queue-positions.repository.js';
import { StreamRegistry } from './stream-registry.service.js';

const INTERVAL_MS = 1_000;
/** How many sessions one look considers. The others follow when these have begun. */
const MOST_SESSIONS = 1_000;
const NOTICES = 'queue notices';

/**
 * Tells the streams of turns that no worker has taken yet what the turns wait for. Positions in the queue change without
 * a notification, so this looks once a second, with one query for all of them and none if no stream waits.
 */
@Injectable()
export class QueueNotices implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger(QueueNotices.name);
  /** The sessions that were waiting at the last look: short waits are not announced. */
  private before: ReadonlySet<string> = new Set();
  private looking: Promise<void> | undefined;

  constructor(
    private readonly registry: StreamRegistry,
    private readonly positions: QueuePositions,
    private readonly scheduler: SchedulerRegistry,
  ) {}

  onApplicationBootstrap(): void {
    const timer = setInterval(() => {
      this.looking ??= this.look().finally(() => (this.looking = undefined));
    }, INTERVAL_MS);
    this.scheduler.addInterval(NOTICES, timer);
  }

  async beforeApplicationShutdown(): Promise<void> {
    if (this.scheduler.doesExist('interval', NOTICES)) this.scheduler.deleteInterval(NOTICES);
    await this.looking;
  }

  private async look(): Promise<void> {
    const waiting = this.registry.waiting();
    const due = [...waiting.keys()].filter((id) => this.before.has(id)).slice(0, MOST_SESSIONS);
    this.before = new Set(waiting.keys());
    if (due.length === 0) return;
    try {
      const sentences = await this.positions.describeUnscoped(due);
      for (const id of due) {
        const sentence = sentences.get(id);
        for (const stream of waiting.get(id) ?? []) {
          if (sentence === undefined) stream.wake(true);
          else stream.sayProgress(sentence);
        }
      }
    } catch (error) {
      if (!isDatabaseUnavailable(error)) {
        this.logger.warn(`Positions in the queue could not be read: ${String(error)}`);
      }
    }
  }
}
