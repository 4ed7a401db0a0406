import type {
  CreateSandboxOptions,
  LaunchOptions,
  LaunchRef,
  NetworkPolicy,
  RunScriptOptions,
  SandboxDriver,
  SandboxFile,
  SandboxLayout,
  SandboxRef,
  ScriptResult,
  SpoolEvent,
} from '../sandbox-driver.js';
import type { NpmProgram } from '../npm-program.js';
import { SandboxError } from '../sandbox-error.js';
import { requireId } from '../shared/ids.js';
import { AGENT_ID, HOME, WORKSPACE } from '../shared/layout.js';
import { urlInside } from '../shared/relay/gateways.js';
import { Relay } from '../shared/relay/relay.js';
import { packFiles, WRITE_FILES_SCRIPT } from '../shared/write-files-script.js';
import type { RunningSandbox } from './docker-sandboxes.js';
import { translate } from './engine.js';
import { runExec } from './exec.js';
import { connectInstallation, type Installation } from './installation.js';
import type { DockerSandboxOptions } from './options.js';
import { installPrograms, lookUp } from './program-layer.js';

const AGENT = `${AGENT_ID}:${AGENT_ID}`;
const OPEN: NetworkPolicy = { mode: 'unrestricted', allowedHosts: [] };

/**
 * Sandboxes as containers of a Docker engine, here or elsewhere: whoever reaches the engine reaches them. The agent is an
 * unprivileged user without rights in a container without a network; names are reached by way of a relay, as with any
 * other driver.
 *
 * Beyond what the port says, not guaranteed: that a reset by a remote host looks different from its end to a program in a
 * sandbox; that disk is limited at the byte, for usage is counted. To the kernel all agents are one user unless the
 * engine remaps users: what sets them apart is their containers. Setup scripts are root of a container: what they
 * put there is out of this driver's hands, but neither the network nor the engine is within their reach.
 */
export class DockerSandboxDriver implements SandboxDriver {
  readonly name = 'docker';
  private connected: Promise<Installation> | undefined;
  private packageHostsOf: { image: string; hosts: readonly string[] } | undefined;

  constructor(private readonly options: DockerSandboxOptions) {}

  layout(_sandboxId: string): SandboxLayout {
    return { home: HOME, workspace: WORKSPACE };
  }

  async preflight({ signal }: { signal: AbortSignal }): Promise<void> {
    await this.ask(signal, async ({ preflight }) => void (await preflight.check(signal)));
  }

  async create(options: CreateSandboxOptions): Promise<void> {
    const { network, writableRoot, signal } = options;
    const sandboxId = requireId(options.sandboxId);
    this.requireApplicable(network);
    await this.ask(signal, async ({ preflight, layers, sandboxes }) => {
      const image = await layers.prepared(await preflight.check(signal), sandboxId);
      if (signal.aborted) throw new SandboxError('aborted', 'the operation was aborted');
      await sandboxes.create(sandboxId, { image, writableRoot, network });
    });
  }

  async packageHosts({ signal }: { signal: AbortSignal }): Promise<readonly string[]> {
    return this.ask(signal, async ({ preflight, readPackageHosts }) => {
      const image = await preflight.check(signal);
      if (this.packageHostsOf?.image !== image) {
        this.packageHostsOf = { image, hosts: await readPackageHosts(image) };
      }
      return this.packageHostsOf.hosts;
    });
  }

  async restrictNetwork(options: SandboxRef & { network: NetworkPolicy }): Promise<void> {
    this.requireApplicable(options.network);
    await this.inside(options, async ({ relay }, { sandboxes }) => {
      await sandboxes.policy(relay, options.network);
    });
  }

  async writeFiles(options: SandboxRef & { files: readonly SandboxFile[] }): Promise<void> {
    const stdin = packFiles(options.files, [HOME, WORKSPACE]);
    await this.inside(options, async ({ container }) => {
      if (stdin.length === 0) return;
      const { exitCode, output } = await runExec(container, {
        command: ['/bin/bash', '--norc', '-c', WRITE_FILES_SCRIPT, 'bash', HOME],
        user: AGENT,
        stdin,
        signal: options.signal,
      });
      if (exitCode === 0) return;
      throw new SandboxError('failed', `files could not be written: ${output.slice(-300)}`);
    });
  }

  async runScript(options: RunScriptOptions): Promise<ScriptResult> {
    const { sandboxId, script, env = {}, signal } = options;
    return this.inside(options, async (sandbox, installation) => {
      const profile = options.as === 'setup' && sandbox.writableRoot ? 'setup' : 'agent';
      if (options.reusable) {
        const network = await installation.sandboxes.policy(sandbox.relay);
        const layer = { image: sandbox.image, script, profile, env, network } as const;
        const built = await installation.layers.built(layer, sandboxId, signal);
        if ('failed' in built) return built.failed;
        await installation.sandboxes.replaceImage(sandboxId, built.image);
        return { exitCode: 0, outputTail: '' };
      }
      const result = await installation.launches.script(sandbox, { script, profile, env, signal });
      // What root has made in the agent's folders is the agent's.
      if (profile === 'setup') await giveToAgent(sandbox);
      return result;
    });
  }

  async providePrograms(options: SandboxRef & { programs: readonly NpmProgram[] }): Promise<void> {
    const { sandboxId, programs, signal } = options;
    await this.inside(options, async (sandbox, { launches, layers, sandboxes }) => {
      const { exitCode } = await runExec(sandbox.container, {
        command: lookUp(programs),
        user: AGENT,
        env: launches.environment(sandbox, 'agent'),
        signal,
      });
      if (exitCode === 0) return;
      const script = installPrograms(programs);
      const layer = {
        image: sandbox.image,
        script,
        profile: 'setup',
        env: {},
        network: OPEN,
      } as const;
      const built = await layers.built(layer, sandboxId, signal);
      if ('failed' in built) {
        throw new SandboxError('failed', built.failed.outputTail.trim().slice(-300));
      }
      await sandboxes.replaceImage(sandboxId, built.image);
    });
  }

  gatewayUrl(url: string): string {
    return urlInside(this.options.gateways, url);
  }

  async launch(options: LaunchOptions): Promise<void> {
    requireId(options.launchId);
    await this.inside(options, (sandbox, { launches }) =>
      launches.start(sandbox, options, 'agent'),
    );
  }

  async *follow(
    options: LaunchRef & { offset: number },
  ): AsyncGenerator<SpoolEvent, void, undefined> {
    requireId(options.launchId);
    const sandboxId = requireId(options.sandboxId);
    try {
      const { launches, sandboxes } = await this.installation();
      yield* launches.follow(() => sandboxes.running(sandboxId), options);
    } catch (error) {
      throw translate(error, this.options.engine.host);
    }
  }

  async kill(options: LaunchRef): Promise<void> {
    requireId(options.launchId);
    await this.inside(options, (sandbox, { launches }) =>
      launches.kill(sandbox, options.launchId),
    ).catch(ignoreGone);
  }

  async discardSpool(options: LaunchRef): Promise<void> {
    requireId(options.launchId);
    await this.inside(options, async ({ container, relay }, { launches, readRefusals }) => {
      for (const refusal of await readRefusals(relay)) {
        this.options.logger?.debug(`Sandbox ${options.sandboxId} was refused ${refusal}`);
      }
      await launches.discard(container, options.launchId);
    }).catch(ignoreGone);
  }

  async exists(options: SandboxRef): Promise<boolean> {
    const sandboxId = requireId(options.sandboxId);
    return this.ask(options.signal, ({ sandboxes }) => sandboxes.exists(sandboxId));
  }

  async destroy(options: SandboxRef): Promise<void> {
    const sandboxId = requireId(options.sandboxId);
    await this.ask(options.signal, ({ sandboxes }) => sandboxes.destroy(sandboxId));
  }

  async list({ signal }: { signal: AbortSignal }): Promise<string[]> {
    return this.ask(signal, ({ sandboxes }) => sandboxes.list());
  }

  async close(): Promise<void> {
    // Connections live as long as requests do, and everything else is on the engine.
  }

  /** Does something in a sandbox that is there, with its containers running. */
  private async inside<T>(
    { sandboxId, signal }: SandboxRef,
    work: (sandbox: RunningSandbox, installation: Installation) => Promise<T>,
  ): Promise<T> {
    requireId(sandboxId);
    return this.ask(signal, async (installation) =>
      work(await installation.sandboxes.running(sandboxId), installation),
    );
  }

  private async ask<T>(
    signal: AbortSignal,
    work: (installation: Installation) => Promise<T>,
  ): Promise<T> {
    if (signal.aborted) throw new SandboxError('aborted', 'the operation was aborted');
    try {
      return await work(await this.installation());
    } catch (error) {
      throw translate(error, this.options.engine.host);
    }
  }

  private installation(): Promise<Installation> {
    this.connected ??= connectInstallation(this.options).catch((error: unknown) => {
      this.connected = undefined;
      throw error;
    });
    return this.connected;
  }

  private requireApplicable(policy: NetworkPolicy): void {
    try {
      void new Relay({ policy, gateways: this.options.gateways });
    } catch (error) {
      const cause = (error as Error).message;
      throw new SandboxError('failed', `the network policy cannot be applied: ${cause}`, {
        cause: error,
      });
    }
  }
}

async function giveToAgent({ container }: RunningSandbox): Promise<void> {
  await runExec(container, { command: ['chown', '-R', '-h', AGENT, '--', HOME, WORKSPACE] });
}

/** For `catch`: in a sandbox that is not there nothing runs and nothing is left. */
function ignoreGone(error: unknown): void {
  if (!(error instanceof SandboxError && error.kind === 'gone')) throw error;
}
