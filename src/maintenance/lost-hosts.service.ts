import { setTimeout as delay } from 'node:timers/promises';
import {
  type BeforeApplicationShutdown,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { Clock } from '../common/clock.js';
import { isDatabaseUnavailable } from '../common/database-unavailable.js';
import { AppConfig } from '../config/app-config.js';
import { EndedTurns } from '../sessions/ended-turns.js';
import { type HostSign, LostHostsRepository } from '../sessions/lost-hosts.repository.js';
import { WorkersRepository } from '../sessions/workers.repository.js';
import { HostWatch } from './host-watch.js';

const LONGEST_INTERVAL_MS = 10_000;

/** Gives up the sandboxes of hosts from which no worker has been heard for too long, and ends what ran in them. */
@Injectable()
export class LostHosts implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger('Maintenance');
  private readonly stopping = new AbortController();
  private readonly intervalMs: number;
  private readonly watch: HostWatch;
  private loop: Promise<void> = Promise.resolve();

  constructor(
    private readonly repository: LostHostsRepository,
    private readonly workers: WorkersRepository,
    private readonly endedTurns: EndedTurns,
    private readonly clock: Clock,
    private readonly config: AppConfig,
  ) {
    this.intervalMs = Math.min(LONGEST_INTERVAL_MS, (config.hostLostSeconds * 1000) / 8);
    this.watch = new HostWatch({
      lostAfterMs: config.hostLostSeconds * 1000,
      longestGapMs: this.intervalMs * 3,
    });
  }

  onApplicationBootstrap(): void {
    this.loop = this.run();
  }

  async beforeApplicationShutdown(): Promise<void> {
    this.stopping.abort();
    await this.loop;
  }

  private async run(): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      try {
        const lost = this.watch.observe(await this.repository.signs(), this.clock.monotonic());
        for (const sign of lost) await this.giveUp(sign);
        await this.workers.forget(Math.max(3600, this.config.hostLostSeconds * 2));
      } catch (error) {
        if (!isDatabaseUnavailable(error)) {
          this.logger.warn(`Hosts could not be looked after: ${String(error)}`);
        }
      }
      await delay(this.intervalMs, undefined, { signal }).catch(() => undefined);
    }
  }

  private async giveUp(sign: HostSign): Promise<void> {
    const ended = await this.repository.giveUp(sign);
    if (!ended) return;
    for (const turn of ended) this.endedTurns.note(turn, 'failed');
    const sessions = ended.map(({ sessionId }) => sessionId).join(', ');
    this.logger.error(
      `The host ${sign.host} is lost: ${ended.length} turns ended` +
        (ended.length > 0 ? ` (sessions ${sessions})` : ''),
    );
  }
}
