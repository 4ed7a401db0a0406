import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import {
  type BeforeApplicationShutdown,
  Inject,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { isDatabaseUnavailable } from '../common/database-unavailable.js';
import { AppConfig, isSoleProcess } from '../config/app-config.js';
import { Doorbell } from '../event-log/doorbell.js';
import { Metrics } from '../metrics/metrics.js';
import type { SandboxDriver } from '../sandboxes/sandbox-driver.js';
import { SANDBOX_DRIVER, SandboxHost } from '../sandboxes/sandbox-host.js';
import { SandboxSweep } from './sandbox-sweep.js';
import { type OnRecord, type SandboxPlace, SandboxesRepository } from './sandboxes.repository.js';
import { Wakeup } from './wakeup.js';
import { Worker } from './worker.service.js';

const POLL_MS = 2_000;
/** The bell rings with every turn: what several of them leave is looked for once. */
const GATHER_MS = 200;
/** How often the records and what there is are compared, in polls. */
const COMPARE_EVERY = 30;
/**
 * For how long nobody else destroys what this process has taken. Two that destroy the same one do no harm, so it need
 * not last for the longest destruction; what a killed process had taken has to wait for it.
 */
const TAKEN_SECONDS = 30;
const PARALLEL = 4;

/** Destroys the sandboxes that were given up: of ended or deleted sessions, idle for too long, or without a record. */
@Injectable()
export class SandboxReaper implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger(SandboxReaper.name);
  private readonly name = randomUUID();
  private readonly wakeup = new Wakeup();
  private readonly stopping = new AbortController();
  /** Sandboxes without a record, and records whose sandbox is gone. */
  private readonly orphans = new Set<string>();
  private readonly place: SandboxPlace;
  private readonly sweep: SandboxSweep;
  private lossesSeen = 0;
  private loop: Promise<void> = Promise.resolve();
  private endSubscription: () => void = () => undefined;

  constructor(
    private readonly repository: SandboxesRepository,
    private readonly worker: Worker,
    private readonly doorbell: Doorbell,
    private readonly config: AppConfig,
    host: SandboxHost,
    @Inject(SANDBOX_DRIVER) driver: SandboxDriver,
    metrics: Metrics,
  ) {
    this.place = { driver: driver.name, host: host.name };
    this.sweep = new SandboxSweep(repository, driver, this.place);
    metrics.gauge(
      'orphans',
      'Sandboxes without a session and sessions without their sandbox, found on this host and not cleared yet',
      () => this.orphans.size,
    );
  }

  onApplicationBootstrap(): void {
    this.endSubscription = this.doorbell.on('work.rang', () => this.wakeup.ring());
    this.loop = this.run();
  }

  async beforeApplicationShutdown(): Promise<void> {
    this.stopping.abort();
    this.endSubscription();
    this.wakeup.ring();
    await this.loop;
  }

  private async run(): Promise<void> {
    if (isSoleProcess(this.config)) await this.repository.releaseAll().catch(() => undefined);
    let idleAt = -Infinity;
    for (let round = 0; !this.stopping.signal.aborted; round += 1) {
      const heard = this.wakeup.heard();
      try {
        // Who has been idle for too long is a matter of time alone, and the bell rings with every turn.
        if (performance.now() - idleAt >= POLL_MS / 2) {
          idleAt = performance.now();
          await this.repository.doomIdle(this.config.sandbox.idleTtlSeconds);
        }
        await this.destroyAll(
          await this.repository.takeDoomed(this.place, this.name, TAKEN_SECONDS),
        );
        // A turn that was taken from this worker may have made a sandbox after it was destroyed.
        if (round % COMPARE_EVERY === 0 || this.lossesSeen !== this.worker.losses) {
          this.lossesSeen = this.worker.losses;
          await this.compare();
        }
      } catch (error) {
        if (!isDatabaseUnavailable(error)) {
          this.logger.warn(`Sandboxes could not be reaped: ${String(error)}`);
        }
      }
      await this.wakeup.wait(heard, POLL_MS);
      const { signal } = this.stopping;
      await delay(GATHER_MS, undefined, { signal }).catch(() => undefined);
    }
    await this.repository.release(this.name).catch(() => undefined);
  }

  /** Finds what is on record and not there, and what is there and not on record. */
  private async compare(): Promise<void> {
    const { withoutRecord: strays, withoutSandbox: gone } = await this.sweep.compare(
      this.stopping.signal,
    );
    this.orphans.clear();
    const goneIds = gone.map(({ sandboxId }) => sandboxId);
    for (const id of [...strays, ...goneIds]) this.orphans.add(id);
    if (strays.length > 0) this.logger.warn(`Sandboxes without a session: ${strays.join(', ')}`);
    if (gone.length > 0) {
      this.logger.warn(`Sessions whose sandbox is gone: ${goneIds.join(', ')}`);
      await this.repository.doomResting(goneIds);
    }
    await this.destroyAll([...strays.map((id) => ({ sandboxId: id, sessionId: id })), ...gone]);
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
      await this.sweep.destroy(sandbox, (sessionId) => this.worker.whenIdle(sessionId));
      this.orphans.delete(sandboxId);
    } catch (error) {
      if (isDatabaseUnavailable(error)) return;
      this.logger.warn(`Sandbox ${sandboxId} could not be destroyed yet: ${String(error)}`);
    }
  }
}
