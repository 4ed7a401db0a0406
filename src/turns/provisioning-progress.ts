import { TurnTimeout } from './interruptions.js';
import { TIMER_LIMIT_MS, type TurnWork } from './turn-work.js';

/** Steps that end sooner are not shown in streams: they would be over before anyone could read them. */
const ANNOUNCE_AFTER_MS = 300;
/** The turn's clock stops for at most this long while it waits for resources that sandboxes share. */
const WAIT_LIMIT_MS = 15 * 60_000;

/**
 * Shows what is being done to provision a turn's sandbox, and stops the turn's clock while it waits for resources that
 * sandboxes share. Both are stored in the turn's progress, for the session's `progress` and for a worker that takes
 * over.
 */
export class ProvisioningProgress {
  private readonly timeout = new AbortController();
  private deadlineTimer: NodeJS.Timeout | undefined;
  private announceTimer: NodeJS.Timeout | undefined;
  /** When the current wait began, by the monotonic clock, and how long the turn had waited before it. */
  private waiting: { since: number; before: number } | undefined;
  /** The current step, without the wait. */
  private step: string | undefined;

  constructor(private readonly work: TurnWork) {
    this.watchDeadline();
  }

  /** Fires when the turn has used up its time. */
  get signal(): AbortSignal {
    return this.timeout.signal;
  }

  /**
   * Begins a step. Its description is stored with the next event of a stage. @param sentence for people, without
   * secrets.
   */
  begin(sentence: string): void {
    this.step = sentence;
    this.say(sentence);
  }

  /** @param what the resource that the turn waits for, `null` when the wait is over. */
  readonly onSharedWork = (what: string | null): void => {
    if (what === null && !this.waiting) return;
    const { clock } = this.work.parts;
    const now = clock.monotonic();
    this.waiting ??= { since: now, before: this.work.journal.progress.waitedMs ?? 0 };
    const { since, before } = this.waiting;
    this.work.journal.progress.waitedMs = Math.min(WAIT_LIMIT_MS, before + Math.round(now - since));
    if (what === null) this.waiting = undefined;
    this.watchDeadline();
    this.say(what ?? this.step);
  };

  /** Must be called at the end, also after an error. */
  end(): void {
    clearTimeout(this.deadlineTimer);
    clearTimeout(this.announceTimer);
    delete this.work.journal.progress.doing;
  }

  private say(sentence: string | undefined): void {
    const { progress } = this.work.journal;
    if (sentence === undefined) delete progress.doing;
    else progress.doing = sentence;
    clearTimeout(this.announceTimer);
    this.announceTimer = setTimeout(() => void this.announce(), ANNOUNCE_AFTER_MS);
  }

  /** Shows the progress in open streams. Errors are ignored, because the progress is not essential. */
  private async announce(): Promise<void> {
    const { parts, turn, journal } = this.work;
    try {
      await journal.flush();
      await parts.output.announceProgress(turn.session_id);
    } catch {
      // The next write of a stage's event fails with the same error, and handles it.
    }
  }

  private watchDeadline(): void {
    clearTimeout(this.deadlineTimer);
    const { parts, turn, journal, deadline } = this.work;
    const waitLeft = this.waiting ? WAIT_LIMIT_MS - (journal.progress.waitedMs ?? 0) : 0;
    const left = deadline + waitLeft - parts.clock.now();
    this.deadlineTimer = setTimeout(
      () => this.timeout.abort(new TurnTimeout(turn.timeout)),
      Math.min(Math.max(0, left), TIMER_LIMIT_MS),
    );
  }
}
