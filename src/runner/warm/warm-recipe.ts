import { createHash } from 'node:crypto';
import type { NpmProgram } from '../../sandboxes/npm-program.js';
import type { NetworkPolicy } from '../../sandboxes/sandbox-driver.js';
import { networkPolicyOf } from '../network-policy.js';
import { needsWritableRoot, provisionScripts } from '../provision-script.js';
import type { EnvironmentPin, TurnPlan } from '../turn-plan.js';

/** What runs in a sandbox before anybody has it: what an environment installs, whatever the session. */
export interface WarmSetup extends EnvironmentPin {
  /** Do its sessions clone first? Then the environment's own script, which may build on that, is left to them. */
  clones: boolean;
  /** What it may reach meanwhile: what such a session's own setup may. */
  network: NetworkPolicy;
}

/**
 * What a ready sandbox is made by. Names things of an environment and holds none of a session: sessions of whomever that
 * come to the same recipe could not tell whose wish a sandbox was made for.
 */
export interface WarmRecipe {
  /** The same for the same recipe, and another one for any other. */
  key: string;
  /** Of its sessions. One for limited ones reaches nothing until it has the policy of its session. */
  networkMode: NetworkPolicy['mode'];
  writableRoot: boolean;
  /** `null`: nothing is installed, and the sandbox is as empty as any. */
  setup: WarmSetup | null;
  programs: readonly NpmProgram[];
}

/**
 * What would be ready for a session like this.
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
          network: await networkPolicyOf(plan, packageHosts),
        }
      : null,
    programs: runtime.programs,
  };
  return { ...made, key: createHash('sha256').update(JSON.stringify(made)).digest('hex') };
}
