import { Provisioner, StageFailed } from './provisioner.js';
import { ProvisioningProgress } from './provisioning-progress.js';
import { Redactor } from './redaction/redactor.js';
import type { TurnPlan } from './turn-plan.js';
import { type TurnWork, ageOf, type TurnRunnerParts } from './turn-work.js';
import { Logger } from '@nestjs/common';
import type { ReportedTokens } from '../runtimes/agent-runtime.js';
import { SandboxError } from '../sandboxes/driver/sandbox-driver.js';
import { sqlStateOf } from '../common/database-errors.js';
import { retry } from '../common/database-retry.js';
import { DomainError } from '../common/errors.js';
import { inWorkContext, noteWork } from '../common/work-context.js';
import type { ClaimedTurn } from './turn-queue.repository.js';
import type { TurnEnd } from './turn-output.repository.js';
import { Draining, LeaseLost, OverBudget, TurnRefused, TurnTimeout } from './interruptions.js';
import { type Lease, leasedDriver } from './turn-leases.js';
import { OutcomeTracker } from './output-decoder.js';
import { endOf, failed, followTurn } from './turn-follower.js';
import { launchTurn } from './turn-launch.js';
import { TurnJournal } from './turn-journal.js';
import { adoptWarm } from './warm-recipe.js';
import { TurnTrace } from './turn-telemetry.js';

/**
 * Provisions the sandbox of a first turn within the turn's time. Skips stages that are done.
 * @returns the plan with the sandbox that the session has got, which may be a warm one
 * @throws StageFailed, or the signal's reason.
 */
async function provisionTurn(
  work: TurnWork,
  planned: TurnPlan,
  redactor: Redactor,
): Promise<TurnPlan> {
  const { parts, turn, journal, sandbox, trace, signal } = work;
  if (turn.turn_number > 1 || journal.progress.stages?.runtime_start) return planned;
  const doing = new ProvisioningProgress(work);
  const within = AbortSignal.any([signal, doing.signal]);
  const release = parts.warm.hold();
  try {
    // Once a worker has begun to make a sandbox for the session, the session keeps it.
    const plan = journal.progress.stages?.create_sprite
      ? planned
      : await adoptWarm(parts.warm, parts.driver, turn, planned, within);
    await new Provisioner({
      adopted: plan.sandboxId !== turn.session_id,
      plan,
      grants: () => parts.grants.issue(turn, plan, work.deadline),
      driver: sandbox,
      redactor,
      doing,
      builds: parts.builds,
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
    doing.end();
  }
}

const DISCARD_LIMIT_MS = 10_000;
/** How long the end of a turn waits for its usage. */
const USAGE_LIMIT_MS = 1_000;

/**
 * Runs one claimed turn from its current state: provisions and launches what is missing, follows the output from the
 * end of the log, and writes how the turn ended.
 */
export class TurnRunner {
  private readonly logger = new Logger(TurnRunner.name);
  /** The turn is left as it is. */
  private readonly stop = new AbortController();
  /** The turn ends with an error. */
  private readonly refused = new AbortController();
  private readonly work: TurnWork;
  /** Known once the turn is planned. */
  private plan: TurnPlan | undefined;
  /** By the agent program, when it has ended. */
  private reportedTokens: ReportedTokens | undefined;

  constructor(
    private readonly parts: TurnRunnerParts,
    private readonly turn: ClaimedTurn,
    private readonly lease: Lease,
  ) {
    const signal = AbortSignal.any([this.stop.signal, this.refused.signal]);
    const journal = new TurnJournal(parts.writer, turn, (error) => this.interrupt(error));
    this.work = {
      parts,
      turn,
      sandbox: leasedDriver(parts.driver, lease, signal),
      journal,
      trace: new TurnTrace(parts.tracing, turn, parts.clock),
      claimedAt: parts.clock.monotonic(),
      signal,
      get deadline() {
        return turn.started_ms + turn.timeout * 1000 + (journal.progress.waitedMs ?? 0);
      },
    };
  }

  get sessionId(): string {
    return this.turn.session_id;
  }

  /** The id of the sandbox; the id of the session until the turn is planned. */
  get sandboxName(): string {
    return this.plan?.sandboxId ?? this.turn.session_id;
  }

  /** Whether output of the turn was committed under this claim. */
  get hasProgressed(): boolean {
    return this.work.journal.hasProgressed;
  }

  /** Bytes of output that the sandbox has written and that are not in the log yet. */
  async lag(signal: AbortSignal): Promise<number> {
    const { journal } = this.work;
    const { turn } = this;
    const sandboxId = this.plan?.sandboxId;
    if (sandboxId === undefined) return journal.pendingBytes;
    const { offset } = journal.position;
    const launch = { sandboxId, launchId: turn.id, signal };
    const unread = await this.parts.driver.backlog?.({ ...launch, offset });
    return (unread ?? 0) + journal.pendingBytes;
  }

  /** Stops working on the turn: ends it with an error, or leaves it and its runtime as they are. */
  interrupt(reason: TurnRefused | OverBudget | LeaseLost | Draining): void {
    if (reason instanceof TurnRefused || reason instanceof OverBudget) this.refused.abort(reason);
    else this.stop.abort(reason);
  }

  /** Never throws. Resolves when this runner has stopped completely. */
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
      if (isInterruption(error)) return;
      this.logger.error('The turn was given up', error);
    }
  }

  /** Runs the turn and converts each failure to a turn's end. */
  private async outcome(): Promise<TurnEnd> {
    const { signal } = this.work;
    try {
      if (this.turn.claims > this.parts.claimLimit) {
        return failed(
          `The turn was given up: ${this.parts.claimLimit} attempts to run it made no progress`,
        );
      }
      const plan = await retry(signal, () => this.parts.planner.plan(this.turn));
      const redactor = await Redactor.prepare(plan.secrets);
      noteWork({ redact: (text) => redactor.redact(text) });
      try {
        return await this.runPlan(plan, redactor);
      } catch (error) {
        if (!(error instanceof SandboxError)) throw error;
        signal.throwIfAborted();
        return failed(redactor.redact(error.message));
      }
    } catch (error) {
      this.stop.signal.throwIfAborted();
      if (isInterruption(error)) throw error;
      return this.failure(this.refused.signal.aborted ? this.refused.signal.reason : error);
    }
  }

  private failure(error: unknown): TurnEnd {
    if (
      error instanceof StageFailed ||
      error instanceof TurnTimeout ||
      error instanceof OverBudget ||
      error instanceof DomainError
    ) {
      return failed(error.message);
    }
    this.logger.error('The turn failed', error);
    if (error instanceof TurnRefused) return failed(error.message);
    if (sqlStateOf(error) === undefined) return failed('Internal error');
    return failed(new TurnRefused('The turn could not be prepared', error).message);
  }

  private async runPlan(planned: TurnPlan, redactor: Redactor): Promise<TurnEnd> {
    const { work } = this;
    this.plan = planned;
    const plan = await provisionTurn(work, planned, redactor);
    this.plan = plan;
    const runtime = work.trace.runtime(
      work.journal.progress.stages?.runtime_start?.startedAt ?? this.parts.clock.now(),
    );
    try {
      await launchTurn(work, plan);
      const outcome = new OutcomeTracker(plan.runtime, redactor, work.journal.progress.outcome);
      const exit = await followTurn(work, plan.sandboxId, redactor, outcome);
      runtime?.end({
        error: exit.reason === 'exited' ? undefined : exit.reason,
        attributes: { 'exit.reason': exit.reason, 'exit.code': exit.exitCode ?? -1 },
      });
      const end = endOf(exit, outcome, this.turn.timeout, this.parts.outputLimitBytes);
      this.reportedTokens = outcome.reportedTokens;
      return end;
    } catch (error) {
      // If the turn continues in another worker, so does its runtime, and that worker ends the span.
      if (!work.signal.aborted) runtime?.end({ error: 'sandbox_failed' });
      throw error;
    }
  }

  private async finish(wanted: TurnEnd): Promise<void> {
    const { id, session_id: sessionId } = this.turn;
    const flushed = await this.flushed(wanted);
    await this.keepChanges();
    // So that the usage of a turn that has ended is complete.
    await this.parts.usage.flush(USAGE_LIMIT_MS);
    this.parts.usage.release(id);
    const end = await this.end(flushed);
    if (end === undefined) return;
    const { provider, turn_number: turnNumber, traceparent } = this.turn;
    this.parts.endedTurns.note(
      { id, sessionId, turnNumber, provider, traceparent, ageMs: ageOf(this.work) },
      end.status,
    );
    this.logger.log({ msg: `The turn has ${end.status}`, exit_code: end.exitCode });
    const tokens = this.reportedTokens;
    if (tokens) await this.parts.usageComparison.compare({ id, sessionId, provider, tokens });
    const sandboxId = this.plan?.sandboxId;
    if (sandboxId === undefined) return;
    const signal = AbortSignal.timeout(DISCARD_LIMIT_MS);
    await this.work.sandbox
      .discardSpool({ sandboxId, launchId: id, signal })
      .catch((error: unknown) =>
        this.logger.warn(`The spool could not be removed: ${String(error)}`),
      );
  }

  /** Before the end of the turn, because afterwards the sandbox may be removed, or have the next turn. */
  private async keepChanges(): Promise<void> {
    const { plan, parts, turn, work } = this;
    if (!plan || plan.repositories.length === 0) return;
    if (!work.journal.progress.stages?.runtime_start) return;
    await this.lease.certain(this.stop.signal);
    const { id, session_id: sessionId, user_id: userId, turn_number: turnNumber, fencing } = turn;
    const claim = { id, sessionId, userId, turnNumber, fencing };
    await parts.changes.keep(claim, plan.sandboxId, this.stop.signal);
  }

  /** Waits until all output is in the log. If that is impossible, the turn has failed. */
  private async flushed(end: TurnEnd): Promise<TurnEnd> {
    try {
      await this.work.journal.flush();
      return end;
    } catch (error) {
      if (!(error instanceof TurnRefused)) throw error;
      // The turn's own error may be the same one, or more specific.
      return end.exitCode === null ? end : this.failure(error);
    }
  }

  /**
   * Writes the end of the turn. If the database permanently rejects it, writes a plain error instead, and if that is
   * rejected too, fails the turn by a statement that touches less. @returns the end that was written, or `undefined` if
   * the turn belongs to another worker.
   */
  private async end(wanted: TurnEnd): Promise<TurnEnd | undefined> {
    const { output, failures } = this.parts;
    const { id, session_id: sessionId, fencing } = this.turn;
    const turn = { id, sessionId, fencing };
    try {
      return (await this.persist(() => output.end(turn, wanted))) ? wanted : undefined;
    } catch (error) {
      if (isInterruption(error)) throw error;
      this.logger.error('The end of the turn was refused', error);
      const plain = failed(
        new TurnRefused('The end of the turn could not be stored', error).message,
      );
      try {
        return (await this.persist(() => output.end(turn, plain))) ? plain : undefined;
      } catch (again) {
        if (isInterruption(again)) throw again;
        const { error: message } = plain;
        const ended = await this.persist(() => failures.fail(id, message ?? '', fencing));
        return ended && plain;
      }
    }
  }

  /**
   * Retries a write that ends the turn while it may succeed, even after the lease seems lost: the first attempt may
   * have been applied without an answer. The fencing token decides whether the turn still belongs to this worker.
   */
  private persist<T>(write: () => Promise<T>): Promise<T> {
    return retry(this.stop.signal, write, (reason) => reason instanceof Draining);
  }
}

function isInterruption(error: unknown): boolean {
  return error instanceof LeaseLost || error instanceof Draining;
}
