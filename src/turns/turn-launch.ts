import { setTimeout as delay } from 'node:timers/promises';
import { Logger } from '@nestjs/common';
import { SandboxError } from '../sandboxes/driver/sandbox-driver.js';
import { networkPolicyOf } from './network-policy.js';
import type { TurnPlan } from './turn-plan.js';
import type { TurnWork } from './turn-work.js';

const LAUNCH_LIMIT_MS = 60_000;
const RETRY_MS = 1_000;
/** After an attempt that was aborted by its own limit, the state is unknown. */
const UNKNOWN = new Set<string>(['unavailable', 'aborted']);

const logger = new Logger('TurnLaunch');

/** Starts the turn's runtime, unless it was started before. @throws SandboxError, or the signal's reason. */
export async function launchTurn(work: TurnWork, plan: TurnPlan): Promise<void> {
  const { parts, turn, journal, sandbox, signal, deadline } = work;
  const stages = (journal.progress.stages ??= {});
  const begun = parts.clock.monotonic();
  const startedBefore = stages.runtime_start !== undefined;
  if (!startedBefore) {
    stages.runtime_start = { startedAt: parts.clock.now() };
    // Committed with the fencing token, so a worker that has lost the turn fails here.
    await journal.stage({ stage: 'runtime_start', state: 'started' });
  }
  signal.throwIfAborted();
  if (turn.turn_number > 1) await untilKnown(work, () => renewNetwork(work, plan));
  const grants = parts.grants.issue(turn, plan, deadline);
  const { command, env, stdin } = plan.runtime.launch(grants.runtimeTurn);
  await untilKnown(work, () =>
    sandbox.launch({
      sandboxId: plan.sandboxId,
      launchId: turn.id,
      // Not the stop signal: an aborted launch is killed, but the runtime must survive a shutdown. A termination ends
      // the launch by destroying the sandbox.
      signal: AbortSignal.timeout(LAUNCH_LIMIT_MS),
      command,
      env: { ...plan.environment?.envVars, ...grants.env, ...env },
      stdin,
      deadline,
      outputLimit: parts.outputLimitBytes,
    }),
  );
  // The gateway may have started with this agent.
  parts.usage.wake();
  if (startedBefore) return;
  const durationMs = parts.clock.monotonic() - begun;
  parts.metrics.stage('runtime_start', 'done', durationMs);
  work.trace.stage('runtime_start', 'done', durationMs);
}

/**
 * Retries until the turn's deadline while the upstream is unavailable or the state is unknown. The sandbox may hold
 * work of earlier turns, and the runtime may have been launched already; failing the turn would destroy both.
 */
async function untilKnown(
  { parts, signal, deadline }: TurnWork,
  act: () => Promise<void>,
): Promise<void> {
  for (let failures = 0; ; failures += 1) {
    try {
      return await act();
    } catch (error) {
      const isUnknown = error instanceof SandboxError && UNKNOWN.has(error.kind);
      if (!isUnknown || parts.clock.now() > deadline) throw error;
      if (failures === 0) logger.warn(`Waiting for the sandbox: ${error.message}`);
      await delay(RETRY_MS, undefined, { signal }).catch(() => undefined);
      signal.throwIfAborted();
    }
  }
}

/** The environment is pinned, but the addresses of the operator's gateways may have changed since the first turn. */
async function renewNetwork({ sandbox, signal: stop }: TurnWork, plan: TurnPlan): Promise<void> {
  const signal = AbortSignal.any([stop, AbortSignal.timeout(LAUNCH_LIMIT_MS)]);
  const { sandboxId } = plan;
  const network = await networkPolicyOf(plan, () => sandbox.packageHosts({ sandboxId, signal }));
  if (network.mode === 'unrestricted') return;
  await sandbox.restrictNetwork({ sandboxId, signal, network });
}
