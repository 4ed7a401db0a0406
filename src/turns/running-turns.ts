import type { Clock } from '../common/clock.js';
import { type Draining, LeaseLost, type OverBudget, type TurnRefused } from './interruptions.js';
import type { Lease } from './turn-leases.js';
import type { ClaimedTurn } from './turn-queue.repository.js';
import type { TurnRunner } from './turn-runner.js';

/** The maximum time that a scrape of the metrics waits for the spools. */
const LAG_LIMIT_MS = 1_000;
/** A turn that a worker has held for this long does not crash workers. */
const HARMLESS_AFTER_MS = 60_000;

interface RunningTurn {
  turn: ClaimedTurn;
  /** By the monotonic clock, milliseconds. */
  claimedAt: number;
  /** The turn belongs to another worker by now, or has ended. */
  lost: boolean;
  runner: TurnRunner;
  lease: Lease;
  /** Resolves when the runner has returned. */
  done: Promise<void>;
}

/** The turns that a worker runs at the moment, each with its runner and its lease. */
export class RunningTurns {
  private readonly running = new Map<string, RunningTurn>();

  /** @param ended called each time a runner has returned. */
  constructor(
    private readonly clock: Clock,
    private readonly ended: () => void,
  ) {}

  get size(): number {
    return this.running.size;
  }

  get ids(): string[] {
    return [...this.running.keys()];
  }

  get turns(): ClaimedTurn[] {
    return [...this.running.values()].map(({ turn }) => turn);
  }

  /** Does this worker run a turn that may have crashed the worker before? */
  get hasSuspect(): boolean {
    return [...this.running.values()].some(
      (each) => each.turn.claims > 1 && !each.runner.hasProgressed && !this.isHarmless(each),
    );
  }

  /** The ids of the turns that have run for long enough to be no danger to the worker. */
  get harmless(): string[] {
    const turns = [...this.running.values()].filter((each) => this.isHarmless(each));
    return turns.map(({ turn }) => turn.id);
  }

  private isHarmless({ claimedAt }: RunningTurn): boolean {
    return this.clock.monotonic() - claimedAt > HARMLESS_AFTER_MS;
  }

  /** The output of all turns that is not in the log yet, in bytes. */
  async lag(): Promise<number> {
    const signal = AbortSignal.timeout(LAG_LIMIT_MS);
    const lags = [...this.running.values()].map(({ runner }) => runner.lag(signal));
    return (await Promise.all(lags)).reduce((sum, lag) => sum + lag, 0);
  }

  /** Starts a runner. @returns a promise that resolves when it has returned. */
  start(turn: ClaimedTurn, runner: TurnRunner, lease: Lease): Promise<void> {
    const done = runner.run().finally(() => {
      this.running.delete(turn.id);
      this.ended();
    });
    const claimedAt = this.clock.monotonic();
    this.running.set(turn.id, { turn, claimedAt, lost: false, runner, lease, done });
    return done;
  }

  extendLease(id: string, until: number): void {
    this.running.get(id)?.lease.extend(until);
  }

  interrupt(id: string, reason: TurnRefused | OverBudget): void {
    this.running.get(id)?.runner.interrupt(reason);
  }

  /** Interrupts all runners, and waits until they have returned. */
  async stop(reason: Draining): Promise<void> {
    for (const { runner } of this.running.values()) runner.interrupt(reason);
    await Promise.all([...this.running.values()].map(({ done }) => done));
  }

  /** Interrupts the runners of turns that this worker has lost. @returns those that were not known to be lost before. */
  interruptLost(ids: readonly string[]): RunningTurn[] {
    const lost: RunningTurn[] = [];
    for (const id of ids) {
      const running = this.running.get(id);
      if (!running || running.lost) continue;
      running.lost = true;
      running.runner.interrupt(new LeaseLost());
      lost.push(running);
    }
    return lost;
  }
}
