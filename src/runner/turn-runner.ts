import { setTimeout as delay } from 'node:timers/promises';
import { Logger } from '@nestjs/common';
import type { Clock } from '../common/clock.js';
import { Refusal } from '../common/errors.js';
import { isDatabaseUnavailable } from '../common/database-unavailable.js';
import { LogKind, type NewLogRow, type StageEvent } from '../event-log/log-row.js';
import type { SandboxDriver, SpoolExit } from '../sandboxes/sandbox-driver.js';
import { SandboxError } from '../sandboxes/sandbox-error.js';
import type { ClaimedTurn, TurnProgress } from '../sessions/turn-lease.repository.js';
import type { TurnEnd, TurnOutputRepository } from '../sessions/turn-output.repository.js';
import { Draining, LeaseLost, TurnTimeout } from './interruptions.js';
import type { Lease } from './lease.js';
import { leasedDriver, type TurnSandbox } from './leased-driver.js';
import { networkPolicyOf } from './network-policy.js';
import { OutcomeTracker } from './outcome-tracker.js';
import { OutputDecoder } from './output-decoder.js';
import type { OutputWriter, TurnLog } from './output-writer.js';
import { Provisioner, StageFailed } from './provisioner.js';
import { Redactor } from './redactor.js';
import type { TurnPlan, TurnPlanner } from './turn-plan.js';

/** Above this, following waits for commits. Bytes. */
const MAX_PENDING_BYTES = 1024 * 1024;
/** How long after the deadline the supervisor may take to act before this worker does. */
const DEADLINE_GRACE_MS = 5_000;
const LAUNCH_LIMIT_MS = 60_000;
const RETRY_MS = 500;
const TIMER_LIMIT_MS = 2 ** 31 - 1;

export interface TurnRunnerParts {
  planner: TurnPlanner;
  driver: SandboxDriver;
  writer: OutputWriter;
  output: TurnOutputRepository;
  clock: Clock;
  outputLimitBytes: number;
}

/**
 * Runs one claimed turn from wherever it stands: provisions what is not provisioned, launches what is not launched,
 * follows the output from where the log ends, and writes how it ended.
 */
export class TurnRunner {
  private readonly logger = new Logger(TurnRunner.name);
  private readonly stop = new AbortController();
  private readonly log: TurnLog;
  private progress: TurnProgress;
  private readonly deadline: number;
  private readonly sandbox: TurnSandbox;
  private position: { offset: number; stdout: number; stderr: number };

  constructor(
    private readonly parts: TurnRunnerParts,
    private readonly turn: ClaimedTurn,
    lease: Lease,
  ) {
    this.sandbox = leasedDriver(parts.driver, lease, this.stop.signal);
    this.log = parts.writer.open(turn);
    this.progress = structuredClone(turn.progress);
    this.deadline = turn.started_ms + turn.timeout * 1000;
    this.position = {
      offset: turn.spool_offset,
      stdout: turn.spool_stdout,
      stderr: turn.spool_stderr,
    };
  }

  get sessionId(): string {
    return this.turn.session_id;
  }

  /** Stops working on the turn, and leaves it and its runtime as they are. */
  interrupt(reason: LeaseLost | Draining): void {
    this.stop.abort(reason);
  }

  /** Never throws; resolves when nothing of this runner is under way any more. */
  async run(): Promise<void> {
    try {
      const end = await this.outcome();
      await this.finish(end);
    } catch (error) {
      if (error instanceof LeaseLost || error instanceof Draining) return;
      this.logger.error(`Turn ${this.turn.id} of session ${this.sessionId} was given up`, error);
    }
  }

  /** Everything up to the turn's end, with each failure turned into one. */
  private async outcome(): Promise<TurnEnd> {
    try {
      const plan = await this.insist(() => this.parts.planner.plan(this.turn));
      const redactor = new Redactor(plan.secrets);
      try {
        await this.provision(plan, redactor);
        await this.launch(plan);
        const outcome = new OutcomeTracker(plan.runtime, this.progress.outcome);
        const exit = await this.follow(redactor, outcome);
        return endOf(exit, outcome, this.turn.timeout, this.parts.outputLimitBytes);
      } catch (error) {
        if (error instanceof SandboxError) {
          this.stop.signal.throwIfAborted();
          return failed(redactor.redact(error.message));
        }
        throw error;
      }
    } catch (error) {
      if (this.stop.signal.aborted) throw this.stop.signal.reason;
      if (error instanceof LeaseLost || error instanceof Draining) throw error;
      if (
        error instanceof StageFailed ||
        error instanceof TurnTimeout ||
        error instanceof Refusal
      ) {
        return failed(error.message);
      }
      this.logger.error(`Turn ${this.turn.id} of session ${this.sessionId} failed`, error);
      return failed('Internal error');
    }
  }

  private async provision(plan: TurnPlan, redactor: Redactor): Promise<void> {
    if (this.turn.turn_number > 1 || this.progress.stages?.runtime_start) return;
    const timeout = new AbortController();
    const remaining = Math.max(0, this.deadline - this.parts.clock.now());
    const timer = setTimeout(
      () => timeout.abort(new TurnTimeout(this.turn.timeout)),
      Math.min(remaining, TIMER_LIMIT_MS),
    );
    try {
      await new Provisioner({
        sandboxId: this.sessionId,
        plan,
        driver: this.sandbox,
        redactor,
        progress: this.progress,
        clock: this.parts.clock,
        signal: AbortSignal.any([this.stop.signal, timeout.signal]),
        emit: (event) => void this.emit(event).catch(() => undefined),
      }).provision();
    } finally {
      clearTimeout(timer);
    }
  }

  private async launch(plan: TurnPlan): Promise<void> {
    const stages = (this.progress.stages ??= {});
    if (!stages.runtime_start) {
      stages.runtime_start = { startedAt: this.parts.clock.now() };
      // Committed under the fencing number: a worker that lost the turn does not get past this line.
      await this.emit({ stage: 'runtime_start', state: 'started' });
    }
    this.stop.signal.throwIfAborted();
    if (this.turn.turn_number > 1) await this.renewNetwork(plan);
    const { command, env, stdin } = plan.runtime.launch(plan.runtimeTurn);
    await this.sandbox.launch({
      sandboxId: this.sessionId,
      launchId: this.turn.id,
      // Not the stop signal: an aborted launch is killed, but a shutdown must leave the runtime alive. What has to end
      // it, a termination, destroys the sandbox.
      signal: AbortSignal.timeout(LAUNCH_LIMIT_MS),
      command,
      env: { ...plan.environment?.envVars, ...env },
      stdin,
      deadline: this.deadline,
      outputLimit: this.parts.outputLimitBytes,
    });
  }

  /** The environment is pinned, but where the operator's gateways are may have changed since the first turn. */
  private async renewNetwork(plan: TurnPlan): Promise<void> {
    const { signal } = this.stop;
    const network = await networkPolicyOf(plan, () => this.sandbox.packageHosts({ signal }));
    if (network.mode === 'unrestricted') return;
    await this.sandbox.restrictNetwork({ sandboxId: this.sessionId, signal, network });
  }

  private async follow(redactor: Redactor, outcome: OutcomeTracker): Promise<SpoolExit> {
    const decoder = new OutputDecoder(redactor, this.position);
    const endWatch = this.killAfterDeadline();
    try {
      const events = this.parts.driver.follow({
        sandboxId: this.sessionId,
        launchId: this.turn.id,
        offset: this.position.offset,
        signal: this.stop.signal,
      });
      for await (const event of events) {
        if (event.kind === 'exit') {
          await this.writeOutput(decoder, decoder.finish(), outcome);
          return event;
        }
        const rows = decoder.push(event);
        if (rows.length === 0) continue;
        const written = this.writeOutput(decoder, rows, outcome);
        written.catch((error: unknown) => this.stop.abort(error));
        if (this.log.pendingBytes > MAX_PENDING_BYTES) await written;
      }
      this.stop.signal.throwIfAborted();
      throw new SandboxError('failed', 'The output ended without an exit');
    } finally {
      endWatch();
    }
  }

  /** Writes rows together with where they end and what they say, so that a successor goes on from all three. */
  private writeOutput(
    decoder: OutputDecoder,
    rows: readonly NewLogRow[],
    outcome: OutcomeTracker,
  ): Promise<void> {
    outcome.take(rows);
    this.position = decoder.position();
    this.progress = { ...this.progress, outcome: outcome.state() };
    return this.log.write(rows, this.position, this.progress);
  }

  /** The supervisor ends a turn at its deadline; this is for one that does not. */
  private killAfterDeadline(): () => void {
    const wait = this.deadline + DEADLINE_GRACE_MS - this.parts.clock.now();
    const timer = setTimeout(
      () => {
        const signal = this.stop.signal;
        this.sandbox
          .kill({ sandboxId: this.sessionId, launchId: this.turn.id, signal })
          .catch((error: unknown) => {
            if (!signal.aborted) this.logger.warn(`Kill at the deadline: ${String(error)}`);
          });
      },
      Math.min(Math.max(0, wait), TIMER_LIMIT_MS),
    );
    return () => clearTimeout(timer);
  }

  private async finish(end: TurnEnd): Promise<void> {
    const { id, session_id: sessionId, fencing } = this.turn;
    // Everything that was emitted before is in the log before the turn ends.
    await this.log.write([], this.position, this.progress);
    // Repeated also after the lease seems lost: that may be the first try, whose answer did not arrive. Whether the turn
    // is still ours to end is for the fencing number to say.
    const ours = await this.insist(
      () => this.parts.output.end({ id, sessionId, fencing }, end),
      (reason) => reason instanceof Draining,
    );
    if (!ours) return;
    await this.parts.driver
      .discardSpool({ sandboxId: sessionId, launchId: id, signal: AbortSignal.timeout(10_000) })
      .catch((error: unknown) => this.logger.warn(`Spool of turn ${id} stays: ${String(error)}`));
  }

  private emit(event: StageEvent): Promise<void> {
    const row = { kind: LogKind.stage, data: JSON.stringify(event) };
    const progress = structuredClone(this.progress);
    const written = this.log.write([row], this.position, progress);
    written.catch((error: unknown) => this.stop.abort(error));
    return written;
  }

  /** Repeats what needs the database until it answers; a database that is away is no reason to fail a turn. */
  private async insist<T>(
    work: () => Promise<T>,
    givesUpFor: (reason: unknown) => boolean = () => true,
  ): Promise<T> {
    const { signal } = this.stop;
    for (;;) {
      if (signal.aborted && givesUpFor(signal.reason)) throw signal.reason;
      try {
        return await work();
      } catch (error) {
        if (!isDatabaseUnavailable(error)) throw error;
        await delay(RETRY_MS, undefined, signal.aborted ? {} : { signal }).catch(() => undefined);
      }
    }
  }
}

function failed(error: string): TurnEnd {
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
