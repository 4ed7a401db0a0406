import { createHash } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { EnvironmentsService } from '../environments/environments.service.js';
import type { SandboxDriver, SandboxLayout } from '../sandboxes/driver/sandbox-driver.js';
import type { WarmPool } from '../sandboxes/lifecycle/warm-pool.service.js';
import { type WarmRecipe, type WarmSetup, WarmSetups } from '../sandboxes/lifecycle/warm-recipe.js';
import { needsWritableRoot, provisionScripts } from './provision-script.js';
import { networkPolicyOf } from './network-policy.js';
import { movedTo, type TurnPlan } from './turn-plan.js';
import type { ClaimedTurn } from './turn-queue.repository.js';

/**
 * The recipe of a warm sandbox for sessions like this one.
 * @param packageHosts as for {@link networkPolicyOf}
 */
export async function recipeOf(
  plan: TurnPlan,
  packageHosts: () => Promise<readonly string[]>,
): Promise<WarmRecipe> {
  const { environment, repositories, runtime, runtimeTurn } = plan;
  const packages = environment?.packages ?? [];
  const setupScript = environment?.setupScript ?? '';
  const input = { layout: runtimeTurn.layout, packages, setupScript, repositories };
  const installs = environment && provisionScripts(input).some(({ reusable }) => reusable);
  const made = {
    networkMode: environment?.networking.type ?? 'unrestricted',
    writableRoot: needsWritableRoot(input),
    setup: installs
      ? {
          id: environment.id,
          version: environment.version,
          clones: repositories.length > 0,
          // As for the setup of a session, whose result is shared.
          network: await networkPolicyOf({ ...plan, repositories: [] }, packageHosts),
        }
      : null,
    programs: runtime.programs,
  };
  return { ...made, key: createHash('sha256').update(JSON.stringify(made)).digest('hex') };
}

/** Tells the warm pool what environments install. */
@Injectable()
export class EnvironmentSetups extends WarmSetups {
  constructor(private readonly environments: EnvironmentsService) {
    super();
  }

  async currentVersions(ids: readonly string[]): Promise<ReadonlyMap<string, number>> {
    return this.environments.currentVersionsUnscoped(ids);
  }

  async scriptsOf(
    { id, version, clones }: WarmSetup,
    layout: SandboxLayout,
  ): Promise<{ scripts: string[]; env: Record<string, string> }> {
    const environment = await this.environments.pinnedUnscoped(id, version);
    const { packages, envVars } = environment;
    const setupScript = clones ? '' : environment.setupScript;
    const scripts = provisionScripts({ layout, packages, setupScript, repositories: [] });
    return {
      scripts: scripts.map(({ script }) => script),
      env: { ...envVars, HOME: layout.home },
    };
  }
}

/**
 * Gives a ready sandbox, if there is one, to the session of a first turn for which no sandbox was begun yet.
 * @returns the plan, for the sandbox that the session has now.
 */
export async function adoptWarm(
  pool: WarmPool,
  driver: SandboxDriver,
  turn: ClaimedTurn,
  plan: TurnPlan,
  signal: AbortSignal,
): Promise<TurnPlan> {
  if (!pool.isOn || plan.sandboxId !== turn.session_id) return plan;
  // If this fails, the stage that needs the hosts reports the error.
  const hosts = () => driver.packageHosts({ sandboxId: plan.sandboxId, signal });
  const recipe = await recipeOf(plan, hosts).catch(() => undefined);
  const sandboxId = recipe && (await pool.adopt(turn, recipe, signal));
  return sandboxId === undefined ? plan : movedTo(plan, sandboxId, driver.layout(sandboxId));
}
