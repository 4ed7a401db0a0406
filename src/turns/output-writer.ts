import { Injectable, Logger } from '@nestjs/common';
import { Limited } from '../common/async.js';
import { isRepairable, isTimeout, isolate } from '../common/database-errors.js';
import { Notifier } from '../event-log/log-notifications.js';
import { TurnOutputRepository } from './turn-output.repository.js';
import { type LoggedTurn, type Part, TurnLog } from './turn-log.js';
import { Draining, LeaseLost, TurnRefused } from './interruptions.js';

/** Once a statement has this many bytes, further turns wait for the next one. */
const BATCH_BYTES = 4 * 1024 * 1024;
/** A turn with more output than this is committed beside the others: the database takes long for megabytes. */
const SMALL_BYTES = 32 * 1024;
const RETRY_MS = [50, 100, 250, 500, 1000];
const pause = (failures: number): number => RETRY_MS[failures] ?? RETRY_MS.at(-1) ?? 0;
/** About as long as the renewal of a lease locks its turn. */
const LOCKED_MS = 5;
/** After this many timeouts in a row, the parts of a batch are committed one by one. */
const TIMEOUTS_TOGETHER = 2;
/** How many turns are committed separately at the same time. Each may hold a connection until it times out. */
const ALONE_AT_ONCE = 2;
/** How often a part is retried that is rejected like those of all other turns, with nothing committed in between. */
const COMMON_REFUSALS = 300;

/** Turns with little output, and those with much, each one statement at a time. */
type Lane = 'small' | 'large';

/**
 * Commits the output of all turns of this worker. Output that arrives while a statement runs goes with the next one, so
 * an idle writer commits at once and a busy one in large batches. Notifies readers after the commit. Turns with little
 * output do not wait for statements with much.
 *
 * A turn that cannot be committed now, while others can, is retried separately and delays nobody.
 */
@Injectable()
export class OutputWriter {
  private readonly logger = new Logger(OutputWriter.name);
  private readonly ready = new Set<TurnLog>();
  /** Parts that are committed separately, with the timers of those that wait for a retry. */
  private readonly apart = new Map<Part, NodeJS.Timeout | undefined>();
  private readonly alone = new Limited(ALONE_AT_ONCE);
  private readonly running = new Map<Lane, Promise<void>>();
  private closed = false;
  /** The number of committed parts. */
  private committed = 0;

  constructor(
    private readonly repository: TurnOutputRepository,
    private readonly notifier: Notifier,
  ) {}

  open(turn: LoggedTurn): TurnLog {
    return new TurnLog(turn, (log) => this.enqueue(log));
  }

  /** Stops waiting for a database that does not answer. Uncommitted output stays in the spools. */
  async close(): Promise<void> {
    this.closed = true;
    for (const [part, timer] of this.apart) {
      if (timer !== undefined) this.abandon(part, new Draining());
    }
    await Promise.all(this.running.values());
  }

  private enqueue(log: TurnLog): void {
    if (log.isTaken) return;
    this.ready.add(log);
    this.start(laneOf(log));
  }

  private start(lane: Lane): void {
    if (!this.running.has(lane)) this.running.set(lane, this.run(lane));
  }

  private async run(lane: Lane): Promise<void> {
    // Waits for one turn of the event loop, so that output that arrived together is committed together.
    await new Promise((resolve) => setImmediate(resolve));
    try {
      while (this.hasReady(lane)) await this.commitTogether(this.takeReady(lane));
    } catch (error) {
      this.logger.error('Output could not be committed', error);
    } finally {
      // Synchronous with the last check of `ready`, so that nothing can be queued in between and be forgotten.
      this.running.delete(lane);
      if (this.hasReady(lane)) this.start(lane);
    }
  }

  private hasReady(lane: Lane): boolean {
    return [...this.ready].some((log) => laneOf(log) === lane);
  }

  private takeReady(lane: Lane): Part[] {
    const parts: Part[] = [];
    let bytes = 0;
    for (const log of this.ready) {
      if (bytes >= BATCH_BYTES) break;
      if (laneOf(log) !== lane) continue;
      this.ready.delete(log);
      try {
        const part = log.take();
        if (!part) continue;
        parts.push(part);
        bytes += part.batch.bytes;
      } catch (error) {
        this.logger.error('Output could not be prepared', error);
        log.abandon(new TurnRefused('The output of the turn could not be stored', error));
      }
    }
    return parts;
  }

  /**
   * Commits the parts of many turns. Retries transient errors. Parts that the database rejects are separated from the
   * others, each of which is committed once.
   */
  private async commitTogether(parts: readonly Part[]): Promise<void> {
    let timeouts = 0;
    for (let attempt = 0; ; attempt += 1) {
      const open = parts.filter((part) => part.log.isTaken && !this.apart.has(part));
      try {
        await isolate(
          open,
          (some) => this.commit(some),
          (part, error, isAtFault) => this.refuse(part, error, isAtFault),
        );
        return;
      } catch (error) {
        if (attempt === 0) this.complain(error);
        timeouts = isTimeout(error) ? timeouts + 1 : 0;
        if (this.closed) for (const part of open) this.abandon(part, new Draining());
        else if (timeouts >= TIMEOUTS_TOGETHER) {
          for (const part of open) this.setApart(part, 0);
        } else await new Promise((resolve) => setTimeout(resolve, pause(attempt)));
      }
    }
  }

  /** Commits one turn's part separately from the others. */
  private async commitAlone(part: Part): Promise<void> {
    try {
      await isolate(
        [part],
        (some) => this.commit(some),
        (_part, error, isAtFault) => this.refuse(part, error, isAtFault),
      );
    } catch (error) {
      this.putOff(part, error);
    }
  }

  /** @returns an empty list: each part is settled, abandoned or put off. */
  private async commit(parts: readonly Part[]): Promise<never[]> {
    const isRepeated = parts.some((part) => part.isRepeated);
    // If this fails, the next attempt may find it applied.
    for (const part of parts) part.isRepeated = true;
    const outcomes = await this.repository.commit(
      parts.map(({ commit }) => commit),
      isRepeated,
    );
    for (const [index, part] of parts.entries()) {
      const outcome = outcomes[index];
      if (outcome === 'committed') this.settle(part);
      else if (outcome === 'locked') this.putOff(part, 'the turn is locked by another connection');
      else this.abandon(part, new LeaseLost());
    }
    return [];
  }

  /** Handles a part that the database rejects: abandons it if its own contents are the cause. */
  private refuse(part: Part, error: unknown, isAtFault: boolean): never[] {
    if (isRepairable(error)) this.putOff(part, error);
    else if ((isAtFault && part.refusedAt === undefined) || this.isGuilty(part)) {
      this.abandon(part, new TurnRefused('The output of the turn could not be stored', error));
    } else this.putOff(part, error);
    return [];
  }

  /** Were other turns committed since this part was first rejected with the same error as theirs? */
  private isGuilty(part: Part): boolean {
    part.refusedAt ??= this.committed;
    part.refusals += 1;
    return this.committed > part.refusedAt || part.refusals > COMMON_REFUSALS;
  }

  private putOff(part: Part, why: unknown): void {
    if (this.closed) return this.abandon(part, new Draining());
    if (part.waits === RETRY_MS.length) this.complain(why, part);
    this.setApart(part, part.waits === 0 ? LOCKED_MS : pause(part.waits - 1));
    part.waits += 1;
  }

  private setApart(part: Part, afterMs: number): void {
    const again = (): void => {
      this.apart.set(part, undefined);
      void this.alone.run(() => this.commitAlone(part));
    };
    this.apart.set(part, setTimeout(again, afterMs));
  }

  private settle(part: Part): void {
    const { log, commit, after } = part;
    this.committed += 1;
    this.apart.delete(part);
    try {
      const { sessionId, rows } = commit;
      if (rows.length > 0) this.notifier.emit('log.committed', { sessionId, after, rows });
    } catch (error) {
      this.logger.error('A reader could not take committed output', error);
    }
    log.settle(part);
    if (log.isOpen) this.enqueue(log);
  }

  private abandon(part: Part, error: Error): void {
    clearTimeout(this.apart.get(part));
    this.apart.delete(part);
    this.ready.delete(part.log);
    part.log.abandon(error);
  }

  private complain(error: unknown, part?: Part): void {
    const whose = part ? ` of the session ${part.commit.sessionId}` : '';
    this.logger.warn(`Output${whose} could not be committed and is retried: ${String(error)}`);
  }
}

function laneOf({ openBytes }: TurnLog): Lane {
  return openBytes > SMALL_BYTES ? 'large' : 'small';
}
