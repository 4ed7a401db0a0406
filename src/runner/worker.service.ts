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
import { isDatabaseUnavailable } from '../common/database-unavailable.js';
import { AppConfig, isSoleProcess } from '../config/app-config.js';
import { Doorbell } from '../event-log/doorbell.js';
import { Metrics } from '../metrics/metrics.js';
import type { SandboxDriver } from '../sandboxes/sandbox-driver.js';
import { SANDBOX_DRIVER, SandboxHost } from '../sandboxes/sandbox-host.js';
import { EndedTurns } from '../sessions/ended-turns.js';
import { type ClaimedTurn, TurnLeaseRepository } from '../sessions/turn-lease.repository.js';
import { TurnOutputRepository } from '../sessions/turn-output.repository.js';
import { WorkersRepository } from '../sessions/workers.repository.js';
import { Tracing } from '../tracing/tracing.js';
import { Draining, LeaseLost } from './interruptions.js';
import { Lease } from './lease.js';
import { OutputWriter } from './output-writer.js';
import { TurnMetrics } from './turn-metrics.js';
import { TurnPlanner } from './turn-plan.js';
import { TurnRunner } from './turn-runner.js';
import { Wakeup } from './wakeup.js';
import { WarmPool } from './warm/warm-pool.service.js';

/** How often an idle worker looks for turns that no doorbell told it of, at least. */
const LONGEST_POLL_MS = 1_000;
const DRAIN_LIMIT_MS = 8_000;
const RENEW_RETRY_MS = 500;
const LONGEST_HEARTBEAT_MS = 15_000;
const PREFLIGHT_LIMIT_MS = 10_000;
/** How long a scrape waits for spools. */
const LAG_LIMIT_MS = 1_000;

interface Running {
  runner: TurnRunner;
  lease: Lease;
  done: Promise<void>;
}

/** Claims turns as it has room for them, keeps their leases, and hands them back when the process stops. */
@Injectable()
export class Worker implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger(Worker.name);
  private readonly owner = `${hostname()}:${process.pid}:${randomUUID().slice(0, 8)}`;
  private readonly runners = new Map<string, Running>();
  private readonly pollMs: number;
  /** What leases are taken for: shorter than configured by what it takes others to notice that one has run out. */
  private readonly leaseSeconds: number;
  private readonly heartbeatMs: number;
  /** How many turns were taken from this worker. */
  losses = 0;
  private readonly wakeup = new Wakeup();
  private readonly stopping = new AbortController();
  private loops: Promise<unknown> = Promise.resolve();
  private endSubscriptions: (() => void)[] = [];

  constructor(
    private readonly leases: TurnLeaseRepository,
    private readonly output: TurnOutputRepository,
    private readonly workers: WorkersRepository,
    private readonly planner: TurnPlanner,
    private readonly writer: OutputWriter,
    private readonly doorbell: Doorbell,
    private readonly config: AppConfig,
    private readonly clock: Clock,
    private readonly host: SandboxHost,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
    private readonly turnMetrics: TurnMetrics,
    private readonly endedTurns: EndedTurns,
    private readonly tracing: Tracing,
    private readonly warm: WarmPool,
    metrics: Metrics,
  ) {
    metrics.gauge('running_turns', 'Turns that this process works on', () => this.runners.size);
    metrics.gauge(
      'spool_lag_bytes',
      'Output of the turns of this process that is not in the log yet',
      () => this.lag(),
    );
    this.pollMs = Math.min(LONGEST_POLL_MS, config.leaseSeconds * 100);
    this.leaseSeconds = config.leaseSeconds - (2 * this.pollMs) / 1000;
    this.heartbeatMs = Math.min(LONGEST_HEARTBEAT_MS, (config.hostLostSeconds * 1000) / 5);
  }

  onApplicationBootstrap(): void {
    this.endSubscriptions = [
      this.doorbell.on('work.rang', () => this.wakeup.ring()),
      this.doorbell.on('bells.missed', () => this.wakeup.ring()),
    ];
    this.loops = this.run();
  }

  async beforeApplicationShutdown(): Promise<void> {
    this.stopping.abort();
    this.wakeup.ring();
    for (const end of this.endSubscriptions) end();
    const limit = new AbortController();
    await Promise.race([
      this.drain(),
      delay(DRAIN_LIMIT_MS, undefined, { signal: limit.signal }).catch(() => undefined),
    ]);
    limit.abort();
    await this.leases
      .release(this.owner)
      .catch((error: unknown) =>
        this.logger.warn(`Leases run out by themselves: ${String(error)}`),
      );
    await this.driver.close();
  }

  /** Leaves all turns as they are: committed as far as they were read, their runtimes running. */
  private async drain(): Promise<void> {
    await this.loops;
    for (const { runner } of this.runners.values()) runner.interrupt(new Draining());
    await Promise.all([...this.runners.values()].map(({ done }) => done));
    await this.writer.close();
  }

  /** Resolves when no turn of this session is being worked on in this process. */
  async whenIdle(sessionId: string): Promise<void> {
    const busy = [...this.runners.values()].filter(({ runner }) => runner.sessionId === sessionId);
    await Promise.all(busy.map(({ done }) => done));
  }

  private async lag(): Promise<number> {
    const signal = AbortSignal.timeout(LAG_LIMIT_MS);
    const lags = [...this.runners.values()].map(({ runner }) => runner.lag(signal));
    return (await Promise.all(lags)).reduce((sum, lag) => sum + lag, 0);
  }

  private async run(): Promise<void> {
    if (isSoleProcess(this.config)) {
      await this.leases
        .expireAll()
        .catch((error: unknown) =>
          this.logger.warn(`Leases of the last run have to run out: ${String(error)}`),
        );
    }
    // First: whoever looks after lost hosts must not find one that has just begun to work again.
    await this.beat();
    await Promise.all([this.claimLoop(), this.leaseLoop(), this.heartbeatLoop()]);
  }

  private async claimLoop(): Promise<void> {
    while (!this.stopping.signal.aborted) {
      const heard = this.wakeup.heard();
      let more = false;
      try {
        await this.dropLost((ids) => this.leases.held(this.owner, ids));
        more = await this.claim();
      } catch (error) {
        this.complain('Turns could not be claimed', error);
      }
      if (!more) await this.wakeup.wait(heard, this.pollMs);
    }
  }

  /** @returns whether there may be more to claim at once. */
  private async claim(): Promise<boolean> {
    const limit = this.config.workerConcurrency - this.runners.size;
    if (limit <= 0) return false;
    const until = this.leaseEnd();
    const turns = await this.leases.claim({
      owner: this.owner,
      driver: this.driver.name,
      host: this.host.name,
      limit,
      leaseSeconds: this.leaseSeconds,
      busyWith: [...this.runners.keys()],
    });
    for (const turn of turns) this.start(turn, new Lease(until, () => this.clock.monotonic()));
    return turns.length > 0;
  }

  private start(turn: ClaimedTurn, lease: Lease): void {
    this.turnMetrics.claimed(turn);
    const runner = new TurnRunner(
      {
        planner: this.planner,
        driver: this.driver,
        writer: this.writer,
        output: this.output,
        clock: this.clock,
        metrics: this.turnMetrics,
        endedTurns: this.endedTurns,
        tracing: this.tracing,
        warm: this.warm,
        outputLimitBytes: this.config.outputLimitBytes,
      },
      turn,
      lease,
    );
    const done = runner.run().finally(() => {
      this.runners.delete(turn.id);
      this.wakeup.ring();
    });
    this.runners.set(turn.id, { runner, lease, done });
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
        const held = await this.dropLost((ids) => this.leases.renew(this.owner, ids, leaseSeconds));
        for (const id of held) this.runners.get(id)?.lease.extend(until);
      } catch (error) {
        // Nobody can take the turns over either while the database is away; the fencing number guards the writes.
        this.complain('Leases could not be renewed', error);
        wait = Math.min(wait, RENEW_RETRY_MS);
      }
    }
  }

  /** When a lease that is asked for now runs out. Counted from before the question: the answer may come late. */
  private leaseEnd(): number {
    return this.clock.monotonic() + this.leaseSeconds * 1000;
  }

  /** Tells all processes that this worker and its host are there, and whether it can make sandboxes. */
  private async heartbeatLoop(): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      await this.beat();
      await delay(this.heartbeatMs, undefined, { signal }).catch(() => undefined);
    }
  }

  private async beat(): Promise<void> {
    try {
      const problem = await this.problem();
      const { owner } = this;
      await this.workers.beat({ owner, driver: this.driver.name, host: this.host.name, problem });
    } catch (error) {
      this.complain('Worker is not heard of', error);
    }
  }

  /** That the database is away is said once for all, by those who ask it. */
  private complain(what: string, error: unknown): void {
    if (!isDatabaseUnavailable(error)) this.logger.warn(`${what}: ${String(error)}`);
  }

  private async problem(): Promise<string | null> {
    try {
      await this.driver.preflight({ signal: AbortSignal.timeout(PREFLIGHT_LIMIT_MS) });
      return null;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }

  /** Interrupts the runners of turns that are no longer ours. */
  private async dropLost(
    stillHeld: (ids: readonly string[]) => Promise<string[]>,
  ): Promise<ReadonlySet<string>> {
    const asked = [...this.runners.keys()];
    if (asked.length === 0) return new Set();
    const held = new Set(await stillHeld(asked));
    for (const id of asked) {
      const running = this.runners.get(id);
      if (held.has(id) || !running) continue;
      running.runner.interrupt(new LeaseLost());
      void running.done.finally(() => {
        this.losses += 1;
      });
    }
    return held;
  }
}
