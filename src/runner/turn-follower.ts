import { Logger } from '@nestjs/common';
import type { SpoolExit } from '../sandboxes/sandbox-driver.js';
import { SandboxError } from '../sandboxes/sandbox-error.js';
import type { OutcomeTracker } from './outcome-tracker.js';
import { OutputDecoder } from './output-decoder.js';
import type { Redactor } from './redactor.js';
import { ageOf, TIMER_LIMIT_MS, type TurnWork } from './turn-work.js';

/** Above this, following waits for commits. Bytes. */
const MAX_PENDING_BYTES = 1024 * 1024;
/** How long after the deadline the supervisor may take to act before this worker does. */
const DEADLINE_GRACE_MS = 5_000;

const logger = new Logger('TurnFollower');

/**
 * Brings the runtime's output into the log, from where the log ends to the exit.
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
  const endWatch = killAfterDeadline(work, sandboxId);
  let silent = !turn.has_output;
  try {
    const events = parts.driver.follow({
      sandboxId,
      launchId: turn.id,
      offset: journal.position.offset,
      signal,
    });
    for await (const event of events) {
      if (event.kind === 'exit') {
        await journal.output(decoder, decoder.finish(), outcome);
        return event;
      }
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
  } finally {
    endWatch();
  }
}

/** The supervisor ends a turn at its deadline; this is for one that does not. */
function killAfterDeadline(
  { parts, turn, sandbox, signal, deadline }: TurnWork,
  sandboxId: string,
): () => void {
  const wait = deadline + DEADLINE_GRACE_MS - parts.clock.now();
  const timer = setTimeout(
    () => {
      sandbox.kill({ sandboxId, launchId: turn.id, signal }).catch((error: unknown) => {
        if (!signal.aborted) logger.warn(`Kill at the deadline: ${String(error)}`);
      });
    },
    Math.min(Math.max(0, wait), TIMER_LIMIT_MS),
  );
  return () => clearTimeout(timer);
}
