import { LogKind, type NewLogRow } from '../event-log/log-row.js';
import type { AgentRuntime, Outcome, OutcomeState } from '../runtimes/agent-runtime.js';

/** A line that is longer is not judged. Characters. */
const MAX_LINE = 4 * 2 ** 20;
/** A line's beginning that is longer is not handed on to a successor, for it goes with every commit. Characters. */
const MAX_CARRIED = 64 * 2 ** 10;
/** Exit codes from here on are what the shell makes of signals. */
const FIRST_SIGNAL_CODE = 128;

/** Follows a runtime's output for what it says about the outcome, so that an exit code cannot lie. */
export class OutcomeTracker {
  private line = '';
  private outcome: Outcome;
  private incomplete: boolean;

  /** @param from what a predecessor had found out at the position where this one goes on */
  constructor(
    private readonly runtime: Pick<AgentRuntime, 'judge'>,
    from: OutcomeState = {},
  ) {
    const { partial = '', incomplete = false, ...outcome } = from;
    this.line = partial;
    this.outcome = outcome;
    this.incomplete = incomplete;
  }

  /** Takes rows in the order of the log. */
  take(rows: readonly NewLogRow[]): void {
    if (!this.runtime.judge) return;
    for (const { kind, data } of rows) {
      if (kind !== LogKind.stdout) continue;
      const lines = (this.line + data).split('\n');
      this.line = lines.pop() ?? '';
      if (this.line.length > MAX_LINE) {
        this.line = '';
        this.incomplete = true;
      }
      for (const line of lines) this.outcome = this.runtime.judge(line) ?? this.outcome;
    }
  }

  /** For a successor that goes on after the rows that were taken; `undefined` where there is nothing to hand on. */
  state(): OutcomeState | undefined {
    if (!this.runtime.judge) return undefined;
    const carried = this.line.length <= MAX_CARRIED;
    const incomplete = this.incomplete || !carried;
    return {
      ...this.outcome,
      ...(this.line !== '' && carried ? { partial: this.line } : {}),
      ...(incomplete ? { incomplete } : {}),
    };
  }

  /**
   * The exit code to report, once all output was taken: never 0 for a turn that did not do its work, and never what looks
   * like a signal when the program itself has said why it failed.
   */
  correct(exitCode: number): { exitCode: number; reason: string | null } {
    if (!this.runtime.judge) return { exitCode, reason: null };
    if (this.line !== '') this.take([{ kind: LogKind.stdout, data: '\n' }]);
    const { verdict, reason } = this.outcome;
    if (verdict === 'failed') {
      const plain = exitCode > 0 && exitCode < FIRST_SIGNAL_CODE;
      return { exitCode: plain ? exitCode : 1, reason: reason ?? null };
    }
    if (exitCode === 0 && verdict === undefined && !this.incomplete) {
      return { exitCode: 1, reason: 'The runtime ended without saying that it has finished' };
    }
    return { exitCode, reason: null };
  }
}
