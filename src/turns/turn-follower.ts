import { storableInteger, storableText } from '../common/storable.js';
import type { TurnEnd } from './turn-output.repository.js';
import { TurnTimeout } from './interruptions.js';
import { type OutcomeTracker, OutputDecoder } from './output-decoder.js';
import { Logger } from '@nestjs/common';
import {
  SandboxError,
  type SpoolExit,
  type SpoolChunk,
} from '../sandboxes/driver/sandbox-driver.js';
import type { Redactor } from './redaction/redactor.js';
import { ageOf, TIMER_LIMIT_MS, type TurnWork } from './turn-work.js';

/** The longest message when a turn ends. Characters. */
const MAX_MESSAGE = 1_000;
const EXIT_CODES = { min: 0, max: 255 };

/** @param error for clients. */
export function failed(error: string): TurnEnd {
  return { status: 'failed', exitCode: null, error: storableText(error, MAX_MESSAGE) };
}

/** Converts the runtime's exit to the end of the turn. */
export function endOf(
  exit: SpoolExit,
  outcome: OutcomeTracker,
  timeout: number,
  outputLimit: number,
): TurnEnd {
  switch (exit.reason) {
    case 'exited': {
      const { exitCode, reason } = outcome.correct(storableInteger(exit.exitCode, EXIT_CODES) ?? 1);
      const error = reason === null ? null : storableText(reason, MAX_MESSAGE);
      return { status: exitCode === 0 ? 'completed' : 'failed', exitCode, error };
    }
    case 'deadline':
      return failed(new TurnTimeout(timeout).message);
    case 'output_limit':
      return failed(`The turn wrote more than the output limit of ${outputLimit} bytes`);
    case 'disk_limit':
      return failed('The sandbox used more disk than its limit');
    case 'memory_limit':
      return failed('The sandbox used more memory than its limit');
    case 'killed':
      return failed('The runtime was killed');
    case 'lost':
      return failed('The runtime was lost: its supervisor is gone without having recorded an exit');
    default:
      // The exit record may come from inside the sandbox.
      return failed('The record of how the runtime ended cannot be read');
  }
}

/** With more uncommitted output than this, the follower waits for commits. Bytes. */
const MAX_PENDING_BYTES = 1024 * 1024;
/** How many chunks of a turn are read, or for how long, before the follower yields to the event loop. */
const CHUNKS_AT_ONCE = 256;
const AT_ONCE_MS = 5;
/** How long after the deadline the supervisor may take to act before this worker does. */
const DEADLINE_GRACE_MS = 5_000;
/** How long after the deadline the follower still waits for a sandbox that sends nothing. */
const OVERDUE_MS = 60_000;

const logger = new Logger('TurnFollower');

/**
 * Writes the runtime's output to the log, from the end of the log to the runtime's exit.
 * @throws SandboxError, or the signal's reason.
 */
export async function followTurn(
  work: TurnWork,
  sandboxId: string,
  redactor: Redactor,
  outcome: OutcomeTracker,
): Promise<SpoolExit> {
  const { parts, turn, journal, signal } = work;
  const decoder = new OutputDecoder(redactor, journal.position);
  const overdue = new Overdue(work);
  const endWatch = killAfterDeadline(work, sandboxId);
  const breaks = new Breaks(() => parts.clock.monotonic());
  let silent = !turn.has_output;
  try {
    const events = parts.driver.follow({
      sandboxId,
      launchId: turn.id,
      offset: journal.position.offset,
      signal: AbortSignal.any([signal, overdue.signal]),
    });
    for await (const event of events) {
      overdue.noteActivity();
      if (breaks.isDue()) await breaks.take();
      if (event.kind === 'exit') {
        await journal.output(decoder, decoder.finish(), outcome);
        return event;
      }
      requireOrder(event, decoder.next);
      const rows = decoder.push(event);
      if (rows.length === 0) continue;
      const written = journal.output(decoder, rows, outcome);
      if (silent) {
        silent = false;
        written.then(
          () => parts.metrics.firstOutput(turn, ageOf(work)),
          () => undefined,
        );
      }
      if (journal.pendingBytes > MAX_PENDING_BYTES) await written;
    }
    signal.throwIfAborted();
    throw new SandboxError('failed', 'The output ended without an exit');
  } catch (error) {
    throw overdue.signal.aborted && !signal.aborted ? new TurnTimeout(turn.timeout) : error;
  } finally {
    overdue.close();
    endWatch();
  }
}

/**
 * Determines when to yield, because reading chunks that are already in memory never yields to the event loop by itself.
 */
class Breaks {
  private chunks = 0;
  private since: number;

  constructor(private readonly now: () => number) {
    this.since = now();
  }

  isDue(): boolean {
    this.chunks += 1;
    return this.chunks >= CHUNKS_AT_ONCE || this.now() - this.since >= AT_ONCE_MS;
  }

  async take(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    this.chunks = 0;
    this.since = this.now();
  }
}

/**
 * Aborts a turn that is long past its deadline and has sent nothing for as long. Until the deadline the worker keeps
 * waiting for a sandbox that it cannot reach, but every turn must end at some time.
 */
class Overdue {
  private readonly controller = new AbortController();
  private readonly timer: NodeJS.Timeout;
  private readonly now: () => number;
  private activeAt: number;

  constructor({ parts: { clock }, deadline }: TurnWork) {
    this.now = () => clock.monotonic();
    this.activeAt = this.now();
    this.timer = setInterval(() => {
      const isLate = clock.now() > deadline + OVERDUE_MS;
      if (isLate && this.now() - this.activeAt > OVERDUE_MS) this.controller.abort();
    }, OVERDUE_MS / 10).unref();
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Records that the sandbox has sent something. */
  noteActivity(): void {
    this.activeAt = this.now();
  }

  close(): void {
    clearInterval(this.timer);
  }
}

/**
 * Checks the offsets, which may come from inside the sandbox and are stored. They must fit into the column, and they
 * must increase, because otherwise a turn could be read forever.
 */
function requireOrder({ offset, nextOffset }: SpoolChunk, next: number): void {
  if (
    storableInteger(offset, { min: next }) === undefined ||
    storableInteger(nextOffset, { min: offset + 1 }) === undefined
  ) {
    throw new SandboxError('failed', 'the output of the sandbox cannot be read');
  }
}

/** Kills the runtime after the deadline if the supervisor has not done so. */
function killAfterDeadline(
  { parts, turn, sandbox, signal, deadline }: TurnWork,
  sandboxId: string,
): () => void {
  const wait = deadline + DEADLINE_GRACE_MS - parts.clock.now();
  const timer = setTimeout(
    () => {
      sandbox.kill({ sandboxId, launchId: turn.id, signal }).catch((error: unknown) => {
        if (!signal.aborted)
          logger.warn(`The runtime could not be killed at the deadline: ${String(error)}`);
      });
    },
    Math.min(Math.max(0, wait), TIMER_LIMIT_MS),
  );
  return () => clearTimeout(timer);
}
