import { randomUUID } from 'node:crypto';
import { requireId } from '../../../../supervisor/sandbox-error.js';
import {
  builtTooLong,
  type RunScriptOptions,
  type ScriptResult,
  type SharedSetup,
} from '../../sandbox-driver.js';
import type { LocalLaunches } from '../local-launches.js';
import type { SandboxFurnishing } from '../sandbox-furnishing.js';
import type { SandboxStore } from '../sandbox-store.js';
import type { BuildSandboxes } from './build-sandboxes.js';
import type { Layer, LayerStore } from './layer-store.js';
import type { Stacks } from './stacks.js';

/** Removes what package managers can download again. Run in the sandbox, because its links may lead anywhere. */
const CLEAN = `
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /var/cache/apt/*.bin`;
const DONE: ScriptResult = { exitCode: 0, outputTail: '' };

/** The setup script of a build did not succeed. */
class BuildFailed extends Error {
  constructor(readonly result: ScriptResult) {
    super(result.outputTail);
  }
}

/** Runs scripts in sandboxes. What sessions share of that is built once, as a layer. */
export class EnvironmentLayers {
  constructor(
    private readonly parts: {
      store: SandboxStore;
      layers: LayerStore;
      stacks: Stacks;
      furnishing: SandboxFurnishing;
      launches: LocalLaunches;
      builds: BuildSandboxes;
      /** The longest duration of a build. */
      buildLimitMs: number;
      destroy: (sandboxId: string) => Promise<void>;
    },
  ) {}

  async runScript(options: RunScriptOptions): Promise<ScriptResult> {
    const { store, launches, stacks, layers, furnishing } = this.parts;
    const { sandboxId, script, env = {}, signal, shared } = options;
    const record = await store.require(requireId(sandboxId));
    if (!options.reusable || shared === undefined || record.stack === undefined) {
      return launches.runScript({ ...options, launchId: randomUUID() });
    }
    const setup: SharedSetup = { ...shared, script, env };
    const template = record.writableRoot ? await furnishing.template({ signal }) : null;
    const name = stacks.layerOf(setup, template?.path ?? null);
    if (record.stack.layer === name) return DONE;
    try {
      const layer =
        (await layers.find(name)) ?? (await this.build(name, setup, record.writableRoot, options));
      await furnishing.putOn(sandboxId, record, layer, template, signal);
      return DONE;
    } catch (error) {
      if (error instanceof BuildFailed) return error.result;
      throw error;
    }
  }

  private async build(
    name: string,
    setup: SharedSetup,
    writableRoot: boolean,
    { signal, onBuild }: Pick<RunScriptOptions, 'signal' | 'onBuild'>,
  ): Promise<Layer> {
    onBuild?.(true);
    try {
      return await this.parts.layers.make(name, {
        signal,
        build: (context) => this.fill(context.draft, setup, writableRoot, context.signal),
      });
    } finally {
      onBuild?.(false);
    }
  }

  /** Removes sandboxes in which processes were building that are gone. Failures are left to the reaper. */
  private async removeAbandoned(): Promise<void> {
    const { builds, destroy } = this.parts;
    for (const sandboxId of await builds.abandoned()) {
      await destroy(sandboxId)
        .then(() => builds.end(sandboxId))
        .catch(() => undefined);
    }
  }

  /** Runs a setup in a sandbox of its own, which has no files of a session, and copies what it has changed. */
  private async fill(
    draft: string,
    { script, env, network }: SharedSetup,
    writableRoot: boolean,
    given: AbortSignal,
  ): Promise<void> {
    const { furnishing, launches, stacks, builds, buildLimitMs, destroy } = this.parts;
    const sandboxId = randomUUID();
    const limit = AbortSignal.timeout(buildLimitMs);
    const signal = AbortSignal.any([given, limit]);
    const run = (text: string) =>
      launches.runScript({
        ...{ sandboxId, launchId: randomUUID(), script: text, as: 'setup', env, signal },
      });
    await this.removeAbandoned();
    await builds.begin(sandboxId);
    try {
      await furnishing.create({ sandboxId, writableRoot, network, signal }, true);
      const result = await run(script);
      if (result.exitCode !== 0) throw new BuildFailed(result);
      if (writableRoot) await run(CLEAN);
      await stacks.export(sandboxId, draft);
    } catch (error) {
      if (!limit.aborted || given.aborted) throw error;
      throw new BuildFailed(builtTooLong(buildLimitMs));
    } finally {
      await destroy(sandboxId);
      await builds.end(sandboxId);
      void this.parts.layers.prune().catch(() => undefined);
    }
  }
}
