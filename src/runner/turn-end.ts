import type { SpoolExit } from '../sandboxes/sandbox-driver.js';
import type { TurnEnd } from '../sessions/turn-output.repository.js';
import { TurnTimeout } from './interruptions.js';
import type { OutcomeTracker } from './outcome-tracker.js';

/** @param error for clients. */
export function failed(error: string): TurnEnd {
  return { status: 'failed', exitCode: null, error };
}

/** How the runtime's exit ends the turn. */
export function endOf(
  exit: SpoolExit,
  outcome: OutcomeTracker,
  timeout: number,
  outputLimit: number,
): TurnEnd {
  switch (exit.reason) {
    case 'exited': {
      const { exitCode, reason } = outcome.correct(exit.exitCode ?? 1);
      return { status: exitCode === 0 ? 'completed' : 'failed', exitCode, error: reason };
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
  }
}
