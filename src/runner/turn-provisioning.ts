import { TurnTimeout } from './interruptions.js';
import { Provisioner } from './provisioner.js';
import type { Redactor } from './redactor.js';
import type { TurnPlan } from './turn-plan.js';
import { TIMER_LIMIT_MS, type TurnWork } from './turn-work.js';

/**
 * Makes the sandbox of a first turn ready, as far as it is not, within the turn's time.
 * @throws StageFailed, or the signal's reason.
 */
export async function provisionTurn(
  work: TurnWork,
  plan: TurnPlan,
  redactor: Redactor,
): Promise<void> {
  const { parts, turn, journal, sandbox, trace, signal, deadline } = work;
  if (turn.turn_number > 1 || journal.progress.stages?.runtime_start) return;
  const timeout = new AbortController();
  const timer = setTimeout(
    () => timeout.abort(new TurnTimeout(turn.timeout)),
    Math.min(Math.max(0, deadline - parts.clock.now()), TIMER_LIMIT_MS),
  );
  try {
    await new Provisioner({
      sandboxId: turn.session_id,
      plan,
      driver: sandbox,
      redactor,
      progress: journal.progress,
      clock: parts.clock,
      signal: AbortSignal.any([signal, timeout.signal]),
      emit: (event) => void journal.stage(event).catch(() => undefined),
      ended: (stage, result, durationMs) => {
        trace.stage(stage, result, durationMs);
        parts.metrics.stage(stage, result, durationMs);
      },
    }).provision();
  } finally {
    clearTimeout(timer);
  }
}
