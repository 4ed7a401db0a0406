import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import {
  type BeforeApplicationShutdown,
  Inject,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { Clock } from '../../common/clock.js';
import { isDatabaseUnavailable } from '../../common/database-errors.js';
import { AppConfig, isSoleProcess } from '../../config/app-config.js';
import { Notifier } from '../../event-log/log-notifications.js';
import { Metrics } from '../../metrics/metrics.js';
import type { SandboxDriver } from '../driver/sandbox-driver.js';
import { SANDBOX_DRIVER, SandboxHost, type SandboxPlace } from '../sandbox-host.js';
import { SandboxRoom } from '../sandbox-room.js';
import { SandboxSweep } from './sandbox-sweep.js';
import { SandboxesInUse } from './sandboxes-in-use.js';
import { type OnRecord, type Owner, SandboxesRepository } from './sandboxes.repository.js';
import { Condition } from '../../common/async.js';

/**
 * Determines which sandboxes have had no record for long enough to be orphans. Waits because a sandbox may get its
 * record a moment later, and because the database may just have been restored from a backup. A restart resets the time.
 */
export class OrphanWatch {
  private since = new Map<string, number>();

  constructor(private readonly graceMs: number) {}

  /**
   * Processes one listing.
   * @param withoutRecord all sandboxes that have no record now. Others are forgotten.
   * @param now monotonic, milliseconds.
   */
  observe(withoutRecord: readonly string[], now: number): { expired: string[]; fresh: string[] } {
    const before = this.since;
    this.since = new Map(withoutRecord.map((id) => [id, before.get(id) ?? now]));
    return {
      expired: withoutRecord.filter((id) => now - (this.since.get(id) ?? now) >= this.graceMs),
      fresh: withoutRecord.filter((id) => !before.has(id)),
    };
  }
}

const POLL_MS = 2_000;
/** Every turn causes notifications, so the reaper waits this long and handles several of them at once. */
const GATHER_MS = 200;
/** The records are compared with the existing sandboxes at least this often. */
const COMPARE_MS = 60_000;
/** How many idle sandboxes are destroyed for more room before the reaper does anything else. */
const ROOM_AT_ONCE = 16;
/**
 * How long no other process destroys a sandbox that this process has taken. May be shorter than the longest
 * destruction, because it does no harm if two processes destroy the same sandbox. After a process was killed, its
 * sandboxes wait for this time.
 */
const TAKEN_SECONDS = 30;
const PARALLEL = 4;

/**
 * Destroys sandboxes that no session needs: those of ended or deleted sessions, idle ones after a time limit, those of
 * warm pools whose process has died, and those without a record.
 */
@Injectable()
export class SandboxReaper implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger(SandboxReaper.name);
  private readonly owner: Owner = { name: randomUUID(), seconds: TAKEN_SECONDS };
  private readonly condition = new Condition();
  private readonly stopping = new AbortController();
  /** Sandboxes without a record, and records whose sandbox is gone. */
  private readonly orphans = new Set<string>();
  private readonly place: SandboxPlace;
  private readonly sweep: SandboxSweep;
  private readonly orphanWatch: OrphanWatch;
  private readonly compareMs: number;
  private loop: Promise<void> = Promise.resolve();
  private endSubscription: () => void = () => undefined;

  constructor(
    private readonly repository: SandboxesRepository,
    private readonly inUse: SandboxesInUse,
    private readonly notifier: Notifier,
    private readonly config: AppConfig,
    private readonly clock: Clock,
    private readonly room: SandboxRoom,
    host: SandboxHost,
    @Inject(SANDBOX_DRIVER) driver: SandboxDriver,
    metrics: Metrics,
  ) {
    this.place = { driver: driver.name, host: host.name };
    this.sweep = new SandboxSweep(repository, driver, this.place);
    const graceMs = config.sandbox.orphanGraceSeconds * 1000;
    this.orphanWatch = new OrphanWatch(graceMs);
    this.compareMs = Math.min(COMPARE_MS, Math.max(POLL_MS, graceMs / 4));
    metrics.gauge(
      'orphans',
      'Sandboxes without a session and sessions without their sandbox, found on this host and not cleared yet',
      () => this.orphans.size,
    );
  }

  onApplicationBootstrap(): void {
    this.endSubscription = this.notifier.on('work.available', () => this.condition.notify());
    this.loop = this.run();
  }

  async beforeApplicationShutdown(): Promise<void> {
    this.stopping.abort();
    this.endSubscription();
    this.condition.notify();
    await this.loop;
  }

  private async run(): Promise<void> {
    if (isSoleProcess(this.config)) await this.repository.release().catch(() => undefined);
    let idleAt = -Infinity;
    let comparedAt = -Infinity;
    while (!this.stopping.signal.aborted) {
      const seen = this.condition.seen();
      try {
        // Idle sandboxes depend on time only, so notifications are no reason to check them more often.
        if (this.clock.monotonic() - idleAt >= POLL_MS / 2) {
          idleAt = this.clock.monotonic();
          await this.markIdle();
        }
        await this.destroyAll(await this.repository.take(this.place, this.owner));
        const isDue = this.clock.monotonic() - comparedAt >= this.compareMs;
        if (isDue || this.inUse.lost.size > 0) {
          comparedAt = this.clock.monotonic();
          await this.compare();
        }
      } catch (error) {
        if (!isDatabaseUnavailable(error)) {
          this.logger.warn(`Sandboxes could not be reaped: ${String(error)}`);
        }
      }
      await this.condition.wait(seen, POLL_MS);
      const { signal } = this.stopping;
      await delay(GATHER_MS, undefined, { signal }).catch(() => undefined);
    }
    await this.repository.release(this.owner.name).catch(() => undefined);
  }

  /**
   * Marks idle sandboxes for deletion: those beyond the time limit or the user's limit, and some if there is no room.
   */
  private async markIdle(): Promise<void> {
    const { idleTtlSeconds, perUser } = this.config.sandbox;
    await this.repository.markIdle(idleTtlSeconds);
    const beyond = await this.repository.markBeyondLimits(perUser);
    if (beyond.length > 0) {
      this.logger.log(`More sandboxes than their user may keep, of sessions ${beyond.join(', ')}`);
    }
    for (let made = 0; made < ROOM_AT_ONCE && !this.stopping.signal.aborted; made += 1) {
      const why = await this.room.pressure(AbortSignal.timeout(POLL_MS * 5));
      if (why === undefined) return;
      const oldest = await this.repository.takeToMakeRoom(this.place, this.owner);
      if (oldest === undefined) return;
      this.logger.warn(`The sandbox of session ${oldest.sessionId} makes room: ${why}`);
      await this.destroy(oldest);
    }
  }

  /** Finds records without a sandbox, and sandboxes without a record. */
  private async compare(): Promise<void> {
    const lost = new Set(this.inUse.lost);
    const { withoutRecord, withoutSandbox: gone } = await this.sweep.compare(this.stopping.signal);
    for (const id of lost) this.inUse.lost.delete(id);
    const { expired, fresh } = this.orphanWatch.observe(withoutRecord, this.clock.monotonic());
    this.orphans.clear();
    const goneIds = gone.map(({ sandboxId }) => sandboxId);
    for (const id of [...withoutRecord, ...goneIds]) this.orphans.add(id);
    if (fresh.length > 0) {
      const grace = this.config.sandbox.orphanGraceSeconds;
      this.logger.warn(
        `Sandboxes without a session, destroyed in ${grace} seconds unless they get one: ${fresh.join(', ')}`,
      );
    }
    if (gone.length > 0) {
      this.logger.warn(`Sessions whose sandbox is gone: ${goneIds.join(', ')}`);
      await this.repository.markTheseIdle(goneIds);
    }
    // If a turn ended while it ran here, its sandbox certainly belongs to this installation, and was made after its
    // record was deleted.
    const certain = withoutRecord.filter((id) => lost.has(id) && !expired.includes(id));
    const orphans = [...expired, ...certain];
    await this.destroyAll([...orphans.map((id) => ({ sandboxId: id, sessionId: id })), ...gone]);
  }

  private async destroyAll(sandboxes: readonly OnRecord[]): Promise<void> {
    const queue = [...sandboxes];
    const destroyNext = async (): Promise<void> => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
        if (this.stopping.signal.aborted) return;
        await this.destroy(next);
      }
    };
    await Promise.all(Array.from({ length: PARALLEL }, destroyNext));
  }

  private async destroy(sandbox: OnRecord): Promise<void> {
    const { sandboxId } = sandbox;
    try {
      await this.sweep.destroy(sandbox, (sessionId) => this.inUse.whenUnused(sessionId));
      this.orphans.delete(sandboxId);
    } catch (error) {
      if (isDatabaseUnavailable(error)) return;
      this.logger.warn(`Sandbox ${sandboxId} could not be destroyed yet: ${String(error)}`);
    }
  }
}
