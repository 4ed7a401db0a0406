import type { EnvironmentsService } from '../../environments/environments.service.js';
import type { NetworkPolicy, SandboxDriver } from '../../sandboxes/sandbox-driver.js';
import { SandboxError } from '../../sandboxes/sandbox-error.js';
import { provisionScripts } from '../provision-script.js';
import type { WarmRecipe } from './warm-recipe.js';

const NETWORKS: Readonly<Record<NetworkPolicy['mode'], NetworkPolicy>> = {
  unrestricted: { mode: 'unrestricted', allowedHosts: [] },
  limited: { mode: 'limited', allowedHosts: [], gateways: [] },
};

/**
 * Makes a sandbox by a recipe.
 * @throws SandboxError, without output of what was run: that may show the environment's secrets.
 */
export async function prepareWarm(options: {
  driver: SandboxDriver;
  environments: EnvironmentsService;
  recipe: WarmRecipe;
  sandboxId: string;
  signal: AbortSignal;
}): Promise<void> {
  const { driver, environments, recipe, sandboxId, signal } = options;
  const { writableRoot, setup, programs } = recipe;
  const network = NETWORKS[recipe.networkMode];
  await driver.create({ sandboxId, signal, writableRoot, network: setup?.network ?? network });
  if (setup !== null) {
    const { packages, setupScript, envVars } = await environments.pinnedUnscoped(
      setup.id,
      setup.version,
    );
    const layout = driver.layout(sandboxId);
    const scripts = provisionScripts({
      layout,
      packages,
      setupScript: setup.clones ? '' : setupScript,
      repositories: [],
    });
    for (const { script } of scripts) {
      const { exitCode } = await driver.runScript({
        sandboxId,
        signal,
        script,
        as: 'setup',
        env: { ...envVars, HOME: layout.home },
        reusable: true,
      });
      if (exitCode !== 0) throw new SandboxError('failed', `its setup ended with ${exitCode}`);
    }
  }
  if (programs.length > 0) await driver.providePrograms({ sandboxId, signal, programs });
  if (setup !== null && network.mode === 'limited') {
    await driver.restrictNetwork({ sandboxId, signal, network });
  }
}
