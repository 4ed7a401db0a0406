import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import {
  type BeforeApplicationShutdown,
  Inject,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { Clock } from '../common/clock.js';
import { isDatabaseUnavailable, isTransient } from '../common/database-errors.js';
import { AppConfig, isSoleProcess } from '../config/app-config.js';
import { SandboxFilesListener } from '../files/remote/sandbox-files-listener.service.js';
import { Notifier } from '../event-log/log-notifications.js';
import { Metrics } from '../metrics/metrics.js';
import type { SandboxDriver } from '../sandboxes/driver/sandbox-driver.js';
import { SANDBOX_DRIVER, SandboxHost } from '../sandboxes/sandbox-host.js';
import { SandboxRoom } from '../sandboxes/sandbox-room.js';
import { EndedTurns } from '../sessions/ended-turns.js';
import { TurnFailures } from './turn-failure.repository.js';
import { type ClaimedTurn, TurnLeaseRepository } from './turn-queue.repository.js';
import { WorkersRepository } from '../sessions/workers.repository.js';
import { BudgetWatch } from './budget-watch.js';
import { Draining, OverBudget, type TurnRefused } from './interruptions.js';
import { Lease, TurnLeases } from './turn-leases.js';
import { OutputWriter } from './output-writer.js';
import { RunningTurns } from './running-turns.js';
import { TurnMetrics } from './turn-telemetry.js';
import { TurnRunner } from './turn-runner.js';
import { TurnRunnerParts } from './turn-work.js';
import { Condition } from '../common/async.js';
import { WorkerHeartbeat } from './worker-heartbeat.js';
import { SandboxesInUse } from '../sandboxes/lifecycle/sandboxes-in-use.js';

/** An idle worker looks for turns at least this often, in case it missed a notification. */
const LONGEST_POLL_MS = 1_000;
const DRAIN_LIMIT_MS = 8_000;
const RENEW_RETRY_MS = 500;

/** Claims turns while it has room for them, renews their leases, and hands them back when the process stops. */
@Injectable()
export class Worker implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger(Worker.name);
  private readonly owner = `${hostname()}:${process.pid}:${randomUUID().slice(0, 8)}`;
  private readonly running: RunningTurns;
  private readonly leases: TurnLeases;
  private readonly pollMs: number;
  /** The duration of leases: shorter than configured by the time that other workers need to notice an expired one. */
  private readonly leaseSeconds: number;
  private readonly heartbeat: WorkerHeartbeat;
  /** Has the database failed to answer this worker since leases were last renewed? */
  private databaseFailed = false;
  private readonly condition = new Condition();
  private readonly stopping = new AbortController();
  private loops: Promise<unknown> = Promise.resolve();
  private endSubscriptions: (() => void)[] = [];

  constructor(
    private readonly repository: TurnLeaseRepository,
    private readonly failures: TurnFailures,
    private readonly parts: TurnRunnerParts,
    workers: WorkersRepository,
    private readonly writer: OutputWriter,
    private readonly notifier: Notifier,
    private readonly config: AppConfig,
    private readonly clock: Clock,
    host: SandboxHost,
    @Inject(SANDBOX_DRIVER) driver: SandboxDriver,
    private readonly turnMetrics: TurnMetrics,
    endedTurns: EndedTurns,
    private readonly inUse: SandboxesInUse,
    private readonly budgets: BudgetWatch,
    files: SandboxFilesListener,
    room: SandboxRoom,
    metrics: Metrics,
  ) {
    this.running = new RunningTurns(clock, () => this.condition.notify());
    metrics.gauge('running_turns', 'Turns that this process works on', () => this.running.size);
    metrics.gauge(
      'spool_lag_bytes',
      'Output of the turns of this process that is not in the log yet',
      () => this.running.lag(),
    );
    this.pollMs = Math.min(LONGEST_POLL_MS, config.leaseSeconds * 100);
    this.leaseSeconds = config.leaseSeconds - (2 * this.pollMs) / 1000;
    this.leases = new TurnLeases({
      repository,
      failures,
      ended: endedTurns,
      clock,
      place: { owner: this.owner, driver: driver.name, host: host.name },
      leaseSeconds: this.leaseSeconds,
      claimLimit: config.turnClaimLimit,
    });
    this.heartbeat = new WorkerHeartbeat({
      workers,
      room,
      worker: {
        owner: this.owner,
        driver: driver.name,
        host: host.name,
        slots: config.workerConcurrency,
        // It listens since before the first heartbeat.
        get url() {
          return files.url;
        },
      },
      hostLostSeconds: config.hostLostSeconds,
      failed: (error) => this.complain('The heartbeat could not be recorded', error),
    });
  }

  /** Why this worker cannot make sandboxes, as of the last heartbeat; `null` if it can. */
  get problem(): string | null {
    return this.heartbeat.problem;
  }

  onApplicationBootstrap(): void {
    this.endSubscriptions = [
      this.notifier.on('work.available', () => this.condition.notify()),
      this.notifier.on('notifications.missed', () => this.condition.notify()),
    ];
    this.loops = this.run();
  }

  async beforeApplicationShutdown(): Promise<void> {
    this.stopping.abort();
    this.condition.notify();
    for (const end of this.endSubscriptions) end();
    const limit = new AbortController();
    await Promise.race([
      this.drain(),
      delay(DRAIN_LIMIT_MS, undefined, { signal: limit.signal }).catch(() => undefined),
    ]);
    limit.abort();
    await this.leases
      .release()
      .catch((error: unknown) =>
        this.logger.warn(`Leases could not be handed back and will expire: ${String(error)}`),
      );
    await this.heartbeat.stop();
  }

  /** Stops working on all turns: commits what was read, and leaves their runtimes running. */
  private async drain(): Promise<void> {
    await this.loops;
    await this.running.stop(new Draining());
    await this.writer.close();
  }

  private async run(): Promise<void> {
    if (isSoleProcess(this.config)) {
      await this.repository
        .expireAll()
        .catch((error: unknown) =>
          this.logger.warn(
            `Leases of the last run could not be ended and will expire: ${String(error)}`,
          ),
        );
    }
    // Before the first claim, so that this host does not count as lost any more when it begins to work.
    await this.heartbeat.beat();
    await Promise.all([
      this.claimLoop(),
      this.leaseLoop(),
      this.heartbeat.run(this.stopping.signal),
      this.budgets.run(
        this.stopping.signal,
        () => this.running.ids,
        (id, reason) => this.running.interrupt(id, new OverBudget(reason)),
      ),
    ]);
  }

  private async claimLoop(): Promise<void> {
    while (!this.stopping.signal.aborted) {
      const seen = this.condition.seen();
      let more = false;
      try {
        await this.dropLost((ids) => this.leases.held(ids));
        more = await this.claim();
      } catch (error) {
        this.databaseFailed ||= isTransient(error);
        this.complain('Turns could not be claimed', error);
      }
      if (!more) await this.condition.wait(seen, this.pollMs);
    }
  }

  /** @returns whether there may be more to claim at once. */
  private async claim(): Promise<boolean> {
    const limit = this.config.workerConcurrency - this.running.size;
    if (limit <= 0) return false;
    const until = this.leaseEnd();
    const turns = await this.leases.claim(limit, this.running.turns, !this.running.hasSuspect);
    for (const turn of turns) this.start(turn, new Lease(until, () => this.clock.monotonic()));
    return turns.length > 0;
  }

  private start(turn: ClaimedTurn, lease: Lease): void {
    this.turnMetrics.claimed(turn);
    const runner = new TurnRunner(this.parts, turn, lease);
    this.inUse.begin(turn.session_id, this.running.start(turn, runner, lease));
  }

  private async leaseLoop(): Promise<void> {
    const { leaseSeconds } = this;
    const { signal } = this.stopping;
    let wait = (leaseSeconds * 1000) / 3;
    while (!signal.aborted) {
      await delay(wait, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      wait = (leaseSeconds * 1000) / 3;
      try {
        const until = this.leaseEnd();
        await this.dropLost(async (ids) => {
          const refused = new Map<string, TurnRefused>();
          const held = await this.leases.renew(ids, this.running.harmless, (id, reason) =>
            refused.set(id, reason),
          );
          for (const [id, reason] of refused) this.running.interrupt(id, reason);
          for (const { id, renewed } of held) {
            if (renewed) this.running.extendLease(id, until);
            else wait = Math.min(wait, RENEW_RETRY_MS);
          }
          return [...held.map(({ id }) => id), ...refused.keys()];
        });
        this.databaseFailed = false;
      } catch (error) {
        // While the database is unavailable, no other worker can take the turns over either. The fencing token
        // protects the writes.
        this.databaseFailed ||= isTransient(error);
        this.complain('Leases could not be renewed', error);
        wait = Math.min(wait, RENEW_RETRY_MS);
      }
    }
  }

  /** When a lease that is requested now expires. Counted from before the request, because the answer may come late. */
  private leaseEnd(): number {
    return this.clock.monotonic() + this.leaseSeconds * 1000;
  }

  /** Logs an error, unless the database is unavailable: the queries themselves log that once. */
  private complain(what: string, error: unknown): void {
    if (!isDatabaseUnavailable(error)) this.logger.warn(`${what}: ${String(error)}`);
  }

  /** Interrupts the runners of turns that this worker no longer holds. */
  private async dropLost(stillHeld: (ids: readonly string[]) => Promise<string[]>): Promise<void> {
    const { ids } = this.running;
    if (ids.length === 0) return;
    const held = new Set(await stillHeld(ids));
    const lost = this.running.interruptLost(ids.filter((id) => !held.has(id)));
    for (const { turn, runner, done } of lost) {
      void done.then(() => this.noteLost(turn.id, runner.sandboxName));
    }
    // If the worker froze, one of the lost turns may be the cause, so their claims count. Only an outage of the
    // database excuses them.
    if (!this.databaseFailed) return;
    // Not essential, so other work with the database does not wait for it.
    await this.leases
      .uncount(lost.map(({ turn }) => turn.id))
      .catch((error: unknown) =>
        this.complain('The claims of lost turns could not be excused', error),
      );
  }

  /**
   * Marks the sandbox of a turn that is recorded as ended. A missing turn proves nothing, so its sandbox gets the usual
   * grace period.
   */
  private async noteLost(turnId: string, sandboxName: string): Promise<void> {
    try {
      const ended = await this.failures.haveEnded([turnId]);
      if (ended.length > 0) this.inUse.lost.add(sandboxName);
    } catch (error) {
      this.complain('The end of a lost turn could not be read', error);
    }
  }
}
