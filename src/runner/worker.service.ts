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
import { AppConfig, isSoleProcess } from '../config/app-config.js';
import { Doorbell } from '../event-log/doorbell.js';
import type { SandboxDriver } from '../sandboxes/sandbox-driver.js';
import { SANDBOX_DRIVER, SandboxHost } from '../sandboxes/sandbox-host.js';
import { type ClaimedTurn, TurnLeaseRepository } from '../sessions/turn-lease.repository.js';
import { TurnOutputRepository } from '../sessions/turn-output.repository.js';
import { Draining, LeaseLost } from './interruptions.js';
import { OutputWriter } from './output-writer.js';
import { TurnPlanner } from './turn-plan.js';
import { TurnRunner } from './turn-runner.js';
import { Wakeup } from './wakeup.js';

/** How often an idle worker looks for turns that no doorbell told it of. */
const POLL_MS = 1_000;
const DRAIN_LIMIT_MS = 8_000;

/** Claims turns as it has room for them, keeps their leases, and hands them back when the process stops. */
@Injectable()
export class Worker implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger(Worker.name);
  private readonly owner = `${hostname()}:${process.pid}:${randomUUID().slice(0, 8)}`;
  private readonly runners = new Map<string, { runner: TurnRunner; done: Promise<void> }>();
  private readonly wakeup = new Wakeup();
  private readonly stopping = new AbortController();
  private loops: Promise<unknown> = Promise.resolve();
  private endSubscriptions: (() => void)[] = [];

  constructor(
    private readonly leases: TurnLeaseRepository,
    private readonly output: TurnOutputRepository,
    private readonly planner: TurnPlanner,
    private readonly writer: OutputWriter,
    private readonly doorbell: Doorbell,
    private readonly config: AppConfig,
    private readonly clock: Clock,
    private readonly host: SandboxHost,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
  ) {}

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
    await this.loops;
    for (const { runner } of this.runners.values()) runner.interrupt(new Draining());
    const drained = Promise.all([...this.runners.values()].map(({ done }) => done));
    const limit = new AbortController();
    await Promise.race([
      Promise.all([drained, this.writer.close()]),
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

  /** Resolves when no turn of this session is being worked on in this process. */
  async whenIdle(sessionId: string): Promise<void> {
    const busy = [...this.runners.values()].filter(({ runner }) => runner.sessionId === sessionId);
    await Promise.all(busy.map(({ done }) => done));
  }

  private async run(): Promise<void> {
    if (isSoleProcess(this.config)) {
      await this.leases
        .expireAll()
        .catch((error: unknown) =>
          this.logger.warn(`Leases of the last run have to run out: ${String(error)}`),
        );
    }
    await Promise.all([this.claimLoop(), this.leaseLoop()]);
  }

  private async claimLoop(): Promise<void> {
    while (!this.stopping.signal.aborted) {
      const heard = this.wakeup.heard();
      let more = false;
      try {
        await this.dropLost(() => this.leases.held(this.owner, [...this.runners.keys()]));
        more = await this.claim();
      } catch (error) {
        this.logger.warn(`Turns could not be claimed: ${String(error)}`);
      }
      if (!more) await this.wakeup.wait(heard, POLL_MS);
    }
  }

  /** @returns whether there may be more to claim at once. */
  private async claim(): Promise<boolean> {
    const limit = this.config.workerConcurrency - this.runners.size;
    if (limit <= 0) return false;
    const turns = await this.leases.claim({
      owner: this.owner,
      driver: this.driver.name,
      host: this.host.name,
      limit,
      leaseSeconds: this.config.leaseSeconds,
      busyWith: [...this.runners.keys()],
    });
    for (const turn of turns) this.start(turn);
    return turns.length > 0;
  }

  private start(turn: ClaimedTurn): void {
    const runner = new TurnRunner(
      {
        planner: this.planner,
        driver: this.driver,
        writer: this.writer,
        output: this.output,
        clock: this.clock,
        outputLimitBytes: this.config.outputLimitBytes,
      },
      turn,
    );
    const done = runner.run().finally(() => {
      this.runners.delete(turn.id);
      this.wakeup.ring();
    });
    this.runners.set(turn.id, { runner, done });
  }

  private async leaseLoop(): Promise<void> {
    const { leaseSeconds } = this.config;
    const { signal } = this.stopping;
    while (!signal.aborted) {
      await delay((leaseSeconds * 1000) / 3, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      try {
        await this.dropLost(() =>
          this.leases.renew(this.owner, [...this.runners.keys()], leaseSeconds),
        );
      } catch (error) {
        // Nobody can take the turns over either while the database is away; the fencing number guards the writes.
        this.logger.warn(`Leases could not be renewed: ${String(error)}`);
      }
    }
  }

  /** Interrupts the runners of turns that are no longer ours. */
  private async dropLost(stillHeld: () => Promise<string[]>): Promise<void> {
    if (this.runners.size === 0) return;
    const asked = [...this.runners.keys()];
    const held = new Set(await stillHeld());
    for (const id of asked) {
      if (!held.has(id)) this.runners.get(id)?.runner.interrupt(new LeaseLost());
    }
  }
}
