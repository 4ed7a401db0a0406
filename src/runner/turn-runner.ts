import { Logger } from '@nestjs/common';
import { Refusal } from '../common/errors.js';
import { inWorkContext, noteWork } from '../common/work-context.js';
import { SandboxError } from '../sandboxes/sandbox-error.js';
import type { ClaimedTurn } from '../sessions/turn-lease.repository.js';
import type { TurnEnd } from '../sessions/turn-output.repository.js';
import { insist } from './insist.js';
import { Draining, LeaseLost, TurnTimeout } from './interruptions.js';
import type { Lease } from './lease.js';
import { leasedDriver } from './leased-driver.js';
import { OutcomeTracker } from './outcome-tracker.js';
import { StageFailed } from './provisioner.js';
import { Redactor } from './redactor.js';
import { endOf, failed } from './turn-end.js';
import { followTurn } from './turn-follower.js';
import { TurnJournal } from './turn-journal.js';
import { launchTurn } from './turn-launch.js';
import type { TurnPlan } from './turn-plan.js';
import { provisionTurn } from './turn-provisioning.js';
import { TurnTrace } from './turn-trace.js';
import { ageOf, type TurnRunnerParts, type TurnWork } from './turn-work.js';

const DISCARD_LIMIT_MS = 10_000;

/**
 * Runs one claimed turn from wherever it stands: provisions what is not provisioned, launches what is not launched,
 * follows the output from where the log ends, and writes how it ended.
 */
export class TurnRunner {
  private readonly logger = new Logger(TurnRunner.name);
  private readonly stop = new AbortController();
  private readonly work: TurnWork;
  /** Known once the turn is planned. */
  private sandboxId: string | undefined;

  constructor(
    private readonly parts: TurnRunnerParts,
    private readonly turn: ClaimedTurn,
    lease: Lease,
  ) {
    const { signal } = this.stop;
    this.work = {
      parts,
      turn,
      sandbox: leasedDriver(parts.driver, lease, signal),
      journal: new TurnJournal(parts.writer, turn, (error) => this.stop.abort(error)),
      trace: new TurnTrace(parts.tracing, turn, parts.clock),
      claimedAt: parts.clock.monotonic(),
      signal,
      deadline: turn.started_ms + turn.timeout * 1000,
    };
  }

  get sessionId(): string {
    return this.turn.session_id;
  }

  /** Bytes of output that the sandbox has written and that are not in the log yet. */
  async lag(signal: AbortSignal): Promise<number> {
    const { journal } = this.work;
    const { sandboxId, turn } = this;
    if (sandboxId === undefined) return journal.pendingBytes;
    const { offset } = journal.position;
    const launch = { sandboxId, launchId: turn.id, signal };
    const unread = await this.parts.driver.backlog?.({ ...launch, offset });
    return (unread ?? 0) + journal.pendingBytes;
  }

  /** Stops working on the turn, and leaves it and its runtime as they are. */
  interrupt(reason: LeaseLost | Draining): void {
    this.stop.abort(reason);
  }

  /** Never throws; resolves when nothing of this runner is under way any more. */
  async run(): Promise<void> {
    const context = {
      sessionId: this.sessionId,
      turnId: this.turn.id,
      traceparent: this.work.trace.traceparent,
    };
    await inWorkContext(context, () => this.runInContext());
  }

  private async runInContext(): Promise<void> {
    try {
      const end = await this.outcome();
      await this.finish(end);
    } catch (error) {
      if (error instanceof LeaseLost || error instanceof Draining) return;
      this.logger.error('The turn was given up', error);
    }
  }

  /** Everything up to the turn's end, with each failure turned into one. */
  private async outcome(): Promise<TurnEnd> {
    const { signal } = this.stop;
    try {
      const plan = await insist(signal, () => this.parts.planner.plan(this.turn));
      const redactor = new Redactor(plan.secrets);
      noteWork({ redact: (text) => redactor.redact(text) });
      try {
        return await this.runPlan(plan, redactor);
      } catch (error) {
        if (!(error instanceof SandboxError)) throw error;
        signal.throwIfAborted();
        return failed(redactor.redact(error.message));
      }
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (error instanceof LeaseLost || error instanceof Draining) throw error;
      if (
        error instanceof StageFailed ||
        error instanceof TurnTimeout ||
        error instanceof Refusal
      ) {
        return failed(error.message);
      }
      this.logger.error('The turn failed', error);
      return failed('Internal error');
    }
  }

  private async runPlan(planned: TurnPlan, redactor: Redactor): Promise<TurnEnd> {
    const { work } = this;
    this.sandboxId = planned.sandboxId;
    const plan = await provisionTurn(work, planned, redactor);
    this.sandboxId = plan.sandboxId;
    const runtime = work.trace.runtime(
      work.journal.progress.stages?.runtime_start?.startedAt ?? this.parts.clock.now(),
    );
    try {
      await launchTurn(work, plan);
      const outcome = new OutcomeTracker(plan.runtime, work.journal.progress.outcome);
      const exit = await followTurn(work, plan.sandboxId, redactor, outcome);
      runtime?.end({
        error: exit.reason === 'exited' ? undefined : exit.reason,
        attributes: { 'exit.reason': exit.reason, 'exit.code': exit.exitCode ?? -1 },
      });
      return endOf(exit, outcome, this.turn.timeout, this.parts.outputLimitBytes);
    } catch (error) {
      // Where the turn goes on elsewhere, so does its runtime: whoever sees its exit ends the span.
      if (!work.signal.aborted) runtime?.end({ error: 'sandbox_failed' });
      throw error;
    }
  }

  private async finish(end: TurnEnd): Promise<void> {
    const { id, session_id: sessionId, fencing } = this.turn;
    // Everything that was emitted before is in the log before the turn ends.
    await this.work.journal.flush();
    // Repeated also after the lease seems lost: that may be the first try, whose answer did not arrive. Whether the turn
    // is still ours to end is for the fencing number to say.
    const ours = await insist(
      this.stop.signal,
      () => this.parts.output.end({ id, sessionId, fencing }, end),
      (reason) => reason instanceof Draining,
    );
    if (!ours) return;
    const { provider, turn_number: turnNumber, traceparent } = this.turn;
    this.parts.endedTurns.note(
      { id, sessionId, turnNumber, provider, traceparent, ageMs: ageOf(this.work) },
      end.status,
    );
    this.logger.log({ msg: `The turn has ${end.status}`, exit_code: end.exitCode });
    const { sandboxId } = this;
    if (sandboxId === undefined) return;
    const signal = AbortSignal.timeout(DISCARD_LIMIT_MS);
    await this.parts.driver
      .discardSpool({ sandboxId, launchId: id, signal })
      .catch((error: unknown) => this.logger.warn(`The spool stays: ${String(error)}`));
  }
}
