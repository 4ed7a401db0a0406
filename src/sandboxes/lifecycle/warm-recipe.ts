import type {
  NetworkPolicy,
  NpmProgram,
  SandboxDriver,
  SandboxLayout,
} from '../driver/sandbox-driver.js';
import { SandboxError } from '../driver/sandbox-driver.js';

/** The setup of a warm sandbox: what the environment installs for every session. */
export interface WarmSetup {
  /** The environment. */
  id: string;
  version: number;
  /**
   * Do its sessions clone repositories first? Then they run the environment's script themselves, because it may need
   * the clones.
   */
  clones: boolean;
  /** The network policy during the setup, as for a session's own setup. */
  network: NetworkPolicy;
}

/**
 * Describes how to make a warm sandbox. Contains nothing of a session, so that sessions of different users with the
 * same recipe cannot tell for whom a sandbox was made.
 */
export interface WarmRecipe {
  /** A digest of the recipe. */
  key: string;
  /**
   * The network mode of its sessions. A sandbox for limited ones reaches nothing until it gets its session's policy.
   */
  networkMode: NetworkPolicy['mode'];
  writableRoot: boolean;
  /** `null` if the environment installs nothing. */
  setup: WarmSetup | null;
  programs: readonly NpmProgram[];
}

/** What the pool needs to know about environments. */
export abstract class WarmSetups {
  /** The current versions of these environments. Environments that get no more sessions are missing. */
  abstract currentVersions(environmentIds: readonly string[]): Promise<ReadonlyMap<string, number>>;
  /** The scripts that install what an environment installs for every session, and their variables. */
  abstract scriptsOf(
    setup: WarmSetup,
    layout: SandboxLayout,
  ): Promise<{ scripts: readonly string[]; env: Record<string, string> }>;
}

/** A script of a setup did not succeed. The message does not have its output, which may contain secrets. */
export class SetupFailed extends SandboxError {
  constructor(
    readonly exitCode: number,
    readonly output: string,
  ) {
    super('failed', `its setup ended with ${exitCode}`);
  }
}

const NETWORKS: Readonly<Record<NetworkPolicy['mode'], NetworkPolicy>> = {
  unrestricted: { mode: 'unrestricted', allowedHosts: [] },
  limited: { mode: 'limited', allowedHosts: [], gateways: [] },
};

/**
 * Makes a sandbox from a recipe.
 * @throws SetupFailed if a script of the setup does not succeed; SandboxError
 */
export async function prepareWarm(options: {
  driver: SandboxDriver;
  setups: WarmSetups;
  recipe: WarmRecipe;
  sandboxId: string;
  signal: AbortSignal;
}): Promise<void> {
  const { driver, setups, recipe, sandboxId, signal } = options;
  const { writableRoot, setup, programs } = recipe;
  const network = NETWORKS[recipe.networkMode];
  const { scripts, env } =
    setup === null
      ? { scripts: [], env: {} }
      : await setups.scriptsOf(setup, driver.layout(sandboxId));
  const shared = setup && { scope: setup.id, network: setup.network };
  const [first] = scripts;
  await driver.create({
    ...{ sandboxId, signal, writableRoot, network: setup?.network ?? network },
    ...(shared && first !== undefined && { setup: { ...shared, script: first, env } }),
  });
  if (shared !== null) {
    for (const script of scripts) {
      const { exitCode, outputTail } = await driver.runScript({
        sandboxId,
        signal,
        script,
        as: 'setup',
        env,
        reusable: true,
        shared,
      });
      if (exitCode !== 0) throw new SetupFailed(exitCode, outputTail);
    }
  }
  if (programs.length > 0) {
    const current = setup?.network ?? network;
    await driver.providePrograms({ sandboxId, signal, programs, network: current });
  }
  if (setup !== null && network.mode === 'limited') {
    await driver.restrictNetwork({ sandboxId, signal, network });
  }
}
