import { type SandboxDriver, SandboxError } from '../sandboxes/driver/sandbox-driver.js';
import { Logger } from '@nestjs/common';
import { abandonable } from '../common/async.js';
import type { Clock } from '../common/clock.js';
import { isRepairable, isTimeout, isTransient, isolate } from '../common/database-errors.js';
import type { EndedTurns } from '../sessions/ended-turns.js';
import type { TurnFailures } from './turn-failure.repository.js';
import type {
  ClaimedTurn,
  ClaimRequest,
  LeaseRenewal,
  TurnLeaseRepository,
} from './turn-queue.repository.js';
import { TurnRefused } from './interruptions.js';

/**
 * How long this process certainly holds a turn. Measured by the monotonic clock from before the database query, so that
 * a process that was frozen or cut off notices at once that its lease is no longer certain.
 */
export class Lease {
  private readonly waiting = new Set<() => void>();

  /** @param until monotonic, milliseconds. */
  constructor(
    private until: number,
    private readonly now: () => number,
  ) {}

  get isCertain(): boolean {
    return this.now() < this.until;
  }

  extend(until: number): void {
    this.until = Math.max(this.until, until);
    for (const wake of this.waiting) wake();
  }

  /** Resolves while the lease is certainly held: at once, or after it was renewed. @throws the signal's reason. */
  async certain(signal: AbortSignal): Promise<void> {
    while (!this.isCertain) {
      signal.throwIfAborted();
      await new Promise<void>((resolve) => {
        const wake = (): void => {
          signal.removeEventListener('abort', wake);
          this.waiting.delete(wake);
          resolve();
        };
        this.waiting.add(wake);
        signal.addEventListener('abort', wake);
      });
    }
    signal.throwIfAborted();
  }
}

/** The driver's operations on a turn's sandbox. */
export type TurnSandbox = Pick<
  SandboxDriver,
  | 'create'
  | 'packageHosts'
  | 'providePrograms'
  | 'restrictNetwork'
  | 'writeFiles'
  | 'runScript'
  | 'launch'
  | 'kill'
  | 'discardSpool'
>;

/** How long a call may take to clean up after its signal has fired. */
const ABORT_GRACE_MS = 5_000;

const noAnswer = (): Error => new SandboxError('aborted', 'The sandbox did not answer in time');

/** Stops waiting for a call that ignores its signal, so that a hanging driver does not prevent the turn's end. */
const inTime = <T>(work: Promise<T>, signal: AbortSignal): Promise<T> =>
  abandonable(work, signal, noAnswer, ABORT_GRACE_MS);

/**
 * The driver for one turn: calls that change the sandbox wait until the lease is certain. The fencing token protects
 * the database but not a sandbox, so a worker whose lease has expired must not touch it. No call lasts much longer than
 * its signal.
 */
export function leasedDriver(driver: SandboxDriver, lease: Lease, stop: AbortSignal): TurnSandbox {
  const held =
    <Options extends { signal: AbortSignal }, Result>(
      work: (options: Options) => Promise<Result>,
    ) =>
    async (options: Options): Promise<Result> => {
      await lease.certain(stop);
      return inTime(work(options), options.signal);
    };
  return {
    packageHosts: (options) => inTime(driver.packageHosts(options), options.signal),
    create: held((options) => driver.create(options)),
    providePrograms: held((options) => driver.providePrograms(options)),
    restrictNetwork: held((options) => driver.restrictNetwork(options)),
    writeFiles: held((options) => driver.writeFiles(options)),
    runScript: held((options) => driver.runScript(options)),
    launch: held((options) => driver.launch(options)),
    kill: held((options) => driver.kill(options)),
    // Called after the turn has ended, so there is no lease any more.
    discardSpool: (options) => inTime(driver.discardSpool(options), options.signal),
  };
}

/** How long a turn that could not be claimed is skipped: after the first time, and at most. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;
/** Turns that were not seen for this long have been ended by others. */
const FORGET_MS = 600_000;

export interface TurnLeasesParts {
  repository: TurnLeaseRepository;
  failures: TurnFailures;
  ended: EndedTurns;
  clock: Clock;
  place: { owner: string; driver: string; host: string | null };
  leaseSeconds: number;
  /** After this many claims without progress, a turn is failed. */
  claimLimit: number;
}

/**
 * The leases of one worker. Each statement is for many turns. If the database rejects it because of one of them, it is
 * repeated without that one, so that no turn prevents others from being claimed, renewed or handed over.
 */
export class TurnLeases {
  private readonly logger = new Logger('Worker');
  /** Turns that could not be claimed: how often, and until when they are skipped. Monotonic, milliseconds. */
  private readonly setAside = new Map<string, { refusals: number; until: number }>();

  constructor(private readonly parts: TurnLeasesParts) {}

  /**
   * Claims up to `limit` turns, in addition to those that this worker runs.
   * @param suspect whether one of them may be a turn without progress since its last claim.
   */
  async claim(
    limit: number,
    running: readonly Pick<ClaimedTurn, 'id' | 'user_id'>[],
    suspect: boolean,
  ): Promise<ClaimedTurn[]> {
    const { repository, place, leaseSeconds } = this.parts;
    const request: ClaimRequest = {
      ...place,
      limit,
      leaseSeconds,
      except: [...running.map(({ id }) => id), ...this.paused()],
      users: running.map(({ user_id: user }) => user),
      suspect,
    };
    try {
      return await repository.claim(request);
    } catch (error) {
      if (isTransient(error)) throw error;
    }
    const turns: ClaimedTurn[] = [];
    try {
      await isolate(
        await repository.claimable(request),
        async (only) => {
          turns.push(...(await repository.claim({ ...request, only })));
          return [];
        },
        this.refuse,
      );
    } catch (error) {
      // Turns that were claimed before the error belong to this worker.
      if (turns.length === 0) throw error;
    }
    for (const { id } of turns) this.setAside.delete(id);
    return turns;
  }

  /** @returns those of the turns whose lease this worker still holds according to the database. */
  async held(turnIds: readonly string[]): Promise<string[]> {
    const { repository, place } = this.parts;
    return isolate(
      turnIds,
      (some) => repository.held(place.owner, some),
      (id) => [id],
    );
  }

  /**
   * Renews leases.
   * @param harmless turns whose claims no longer count.
   * @param refused called for a turn whose lease cannot be renewed, though it may still belong to this worker.
   * @returns the turns that this worker still holds, whether or not they were renewed now.
   */
  async renew(
    turnIds: readonly string[],
    harmless: readonly string[],
    refused: (turnId: string, reason: TurnRefused) => void,
  ): Promise<LeaseRenewal[]> {
    const { repository, place, leaseSeconds } = this.parts;
    const held = await isolate(
      turnIds,
      (some) => repository.renew(place.owner, some, leaseSeconds, harmless),
      (id, error, isAtFault) => {
        if (!isAtFault) return [{ id, renewed: false }];
        refused(id, new TurnRefused('The lease of the turn could not be renewed', error));
        return [];
      },
    );
    const skipped = held.filter(({ renewed }) => !renewed).map(({ id }) => id);
    const late = new Set(await this.renewLocked(skipped));
    return held.map(({ id, renewed }) => ({ id, renewed: renewed || late.has(id) }));
  }

  /** Waits for locks: for all turns at once, and if that fails for each separately. @returns the renewed turns. */
  private async renewLocked(turnIds: readonly string[]): Promise<string[]> {
    if (turnIds.length === 0) return [];
    const { repository, place, leaseSeconds } = this.parts;
    try {
      return await repository.renewWaiting(place.owner, turnIds, leaseSeconds);
    } catch (error) {
      if (!isTimeout(error) || turnIds.length === 1) return [];
      const renewed: string[] = [];
      for (const id of turnIds) renewed.push(...(await this.renewLocked([id])));
      return renewed;
    }
  }

  /** Records that turns were lost to other workers through no fault of their own: these claims do not count. */
  async uncount(turnIds: readonly string[]): Promise<void> {
    await isolate(
      turnIds,
      async (some) => {
        await this.parts.repository.uncount(some);
        return [];
      },
      () => [],
    );
  }

  /** Hands all leases back at once, and notifies the other workers. */
  async release(): Promise<void> {
    const { repository, place } = this.parts;
    await isolate(
      await repository.leased(place.owner),
      async (some) => {
        await repository.release(place.owner, some);
        return [];
      },
      (id, error) => {
        this.logger.warn(
          `The lease of the turn ${id} could not be handed back and will expire: ${String(error)}`,
        );
        return [];
      },
    );
    await repository.callWorkers();
  }

  /** The turns to skip for now. */
  private paused(): string[] {
    const now = this.parts.clock.monotonic();
    for (const [id, { until }] of this.setAside) {
      if (until + FORGET_MS < now) this.setAside.delete(id);
    }
    return [...this.setAside].filter(([, { until }]) => until > now).map(([id]) => id);
  }

  /** Skips a turn that cannot be claimed for a while, and finally fails it if the turn itself is the cause. */
  private readonly refuse = async (
    id: string,
    error: unknown,
    isAtFault: boolean,
  ): Promise<never[]> => {
    const { clock, claimLimit, failures, ended } = this.parts;
    const refusals = (this.setAside.get(id)?.refusals ?? 0) + (isAtFault ? 1 : 0);
    const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.max(0, refusals - 1));
    this.setAside.set(id, { refusals, until: clock.monotonic() + pause });
    this.logger.warn(`The turn ${id} could not be claimed (${refusals}): ${String(error)}`);
    if (!isAtFault || refusals < claimLimit) return [];
    const { message } = new TurnRefused('The turn could not be started', error);
    try {
      const turn = await failures.fail(id, message);
      if (turn) ended.note(turn, 'failed');
      this.setAside.delete(id);
    } catch (failure) {
      if (isRepairable(failure)) throw failure;
      this.logger.error(`The turn ${id} could not be ended either`, failure);
    }
    return [];
  };
}
