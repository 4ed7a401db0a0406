import { networkPolicyOf } from './network-policy.js';
import type { TurnPlan } from './turn-plan.js';
import type { TurnWork } from './turn-work.js';

const LAUNCH_LIMIT_MS = 60_000;

/** Starts the turn's runtime, unless it was ever started. @throws SandboxError, or the signal's reason. */
export async function launchTurn(work: TurnWork, plan: TurnPlan): Promise<void> {
  const { parts, turn, journal, sandbox, signal, deadline } = work;
  const stages = (journal.progress.stages ??= {});
  const begun = parts.clock.monotonic();
  const startedBefore = stages.runtime_start !== undefined;
  if (!startedBefore) {
    stages.runtime_start = { startedAt: parts.clock.now() };
    // Committed under the fencing number: a worker that lost the turn does not get past this line.
    await journal.stage({ stage: 'runtime_start', state: 'started' });
  }
  signal.throwIfAborted();
  if (turn.turn_number > 1) await renewNetwork(work, plan);
  const { command, env, stdin } = plan.runtime.launch(plan.runtimeTurn);
  await sandbox.launch({
    sandboxId: plan.sandboxId,
    launchId: turn.id,
    // Not the stop signal: an aborted launch is killed, but a shutdown must leave the runtime alive. What has to end
    // it, a termination, destroys the sandbox.
    signal: AbortSignal.timeout(LAUNCH_LIMIT_MS),
    command,
    env: { ...plan.environment?.envVars, ...env },
    stdin,
    deadline,
    outputLimit: parts.outputLimitBytes,
  });
  if (startedBefore) return;
  const durationMs = parts.clock.monotonic() - begun;
  parts.metrics.stage('runtime_start', 'done', durationMs);
  work.trace.stage('runtime_start', 'done', durationMs);
}

/** The environment is pinned, but where the operator's gateways are may have changed since the first turn. */
async function renewNetwork({ sandbox, signal }: TurnWork, plan: TurnPlan): Promise<void> {
  const network = await networkPolicyOf(plan, () => sandbox.packageHosts({ signal }));
  if (network.mode === 'unrestricted') return;
  await sandbox.restrictNetwork({ sandboxId: plan.sandboxId, signal, network });
}
