import { TurnTimeout } from './interruptions.js';
import { Provisioner } from './provisioner.js';
import type { Redactor } from './redactor.js';
import type { TurnPlan } from './turn-plan.js';
import { TIMER_LIMIT_MS, type TurnWork } from './turn-work.js';

/**
 * Makes the sandbox of a first turn ready, as far as it is not, within the turn's time.
 * @returns the plan, for the sandbox that the session turned out to get
 * @throws StageFailed, or the signal's reason.
 */
export async function provisionTurn(
  work: TurnWork,
  planned: TurnPlan,
  redactor: Redactor,
): Promise<TurnPlan> {
  const { parts, turn, journal, sandbox, trace, signal, deadline } = work;
  if (turn.turn_number > 1 || journal.progress.stages?.runtime_start) return planned;
  const timeout = new AbortController();
  const timer = setTimeout(
    () => timeout.abort(new TurnTimeout(turn.timeout)),
    Math.min(Math.max(0, deadline - parts.clock.now()), TIMER_LIMIT_MS),
  );
  const within = AbortSignal.any([signal, timeout.signal]);
  const release = parts.warm.hold();
  try {
    // Once a sandbox has been begun, that is the session's.
    const plan = journal.progress.stages?.create_sprite
      ? planned
      : await parts.warm.adopt(turn, planned, within);
    await new Provisioner({
      adopted: plan.sandboxId !== turn.session_id,
      plan,
      driver: sandbox,
      redactor,
      progress: journal.progress,
      clock: parts.clock,
      signal: within,
      emit: (event) => void journal.stage(event).catch(() => undefined),
      ended: (stage, result, durationMs) => {
        trace.stage(stage, result, durationMs);
        parts.metrics.stage(stage, result, durationMs);
      },
    }).provision();
    return plan;
  } finally {
    release();
    clearTimeout(timer);
  }
}
