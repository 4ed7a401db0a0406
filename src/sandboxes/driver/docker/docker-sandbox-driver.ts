import type { Duplex } from 'node:stream';
import type {
  CreateSandboxOptions,
  DiskLimit,
  Existence,
  LaunchOptions,
  LaunchRef,
  NetworkPolicy,
  ProvideProgramsOptions,
  RunScriptOptions,
  SandboxRef,
  ScriptResult,
  LimitReport,
} from '../sandbox-driver.js';
import { ignoreGone, RemoteSandboxDriver } from '../remote-sandbox-driver.js';
import type { LaunchRequest } from '../../../supervisor/launch-request.js';
import { SandboxError, requireId, requireNotAborted } from '../../../supervisor/sandbox-error.js';
import { Relay } from '../../../supervisor/relay/relay.js';
import type { Profile } from './docker-launches.js';
import type { RunningSandbox } from './docker-sandboxes.js';
import type { Layer } from './image-layers.js';
import { connectInstallation, type Installation } from './installation.js';
import { isEngineAway, translate, inTime } from './engine.js';
import type { DockerSandboxOptions } from './options.js';
import { provideProgramLayer } from './program-layer.js';

const ROOT_LIMIT_MS = 10_000;

/**
 * Sandboxes as containers of a local or remote Docker engine. Every process that can reach the engine can reach the
 * sandboxes. The agent is an unprivileged user without capabilities in a container without a network; a relay provides
 * access to names, as with any other driver.
 *
 * Limitations beyond those in the port: a program in a sandbox may not be able to distinguish a reset by a remote host
 * from an orderly end. If the engine's storage has no quotas, disk usage is counted, so the limit is not exact. Unless
 * the engine remaps users, all agents are the same user to the kernel and are only separated by their containers. Setup
 * scripts run as root of a container: this driver does not control what they create there, but they can reach neither
 * the network nor the engine.
 */
export class DockerSandboxDriver extends RemoteSandboxDriver<Installation> {
  readonly name = 'docker';
  private root: Promise<string> | undefined;
  private packageHostsOf: { image: string; hosts: readonly string[] } | undefined;

  constructor(private readonly options: DockerSandboxOptions) {
    super();
  }

  async preflight({ signal }: { signal: AbortSignal }): Promise<void> {
    await this.ask(signal, async ({ preflight }) => void (await preflight.check(signal)));
  }

  async limits(options: { signal: AbortSignal }): Promise<LimitReport> {
    // The engine creates control groups for each container.
    return {
      memory: 'hard',
      processes: 'hard',
      cpu: this.options.cpus === undefined ? 'shared' : 'hard',
      disk: (await this.diskLimit(options)).kind,
    };
  }

  async create(options: CreateSandboxOptions): Promise<void> {
    const { network, writableRoot, signal, setup } = options;
    const sandboxId = requireId(options.sandboxId);
    this.requireApplicable(network);
    await this.ask(signal, async ({ preflight, layers, sandboxes }) => {
      const base = await layers.prepared(await preflight.check(signal), sandboxId);
      const profile = writableRoot ? 'setup' : 'agent';
      const installed = setup && (await layers.find({ ...setup, image: base, profile }));
      requireNotAborted(signal);
      await sandboxes.create(sandboxId, { image: installed ?? base, writableRoot, network });
      if (installed) await sandboxes.seed(sandboxId);
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

  async runScript(options: RunScriptOptions): Promise<ScriptResult> {
    const { script, env = {}, signal } = options;
    return this.inside(options, async (sandbox, installation) => {
      const profile = options.as === 'setup' && sandbox.writableRoot ? 'setup' : 'agent';
      if (options.reusable) return this.install(options, profile, sandbox, installation);
      const { launches, sandboxes } = installation;
      const how = { script, profile, env, signal } as const;
      if (profile === 'agent') return launches.script(sandbox, how);
      let result: ScriptResult;
      try {
        result = await launches.script(sandbox, how);
      } finally {
        // Also after a failure, because processes that the script left behind run as root.
        await sandboxes.restart(sandbox.container);
      }
      // The script ran as root, so its files in the agent's folders are given to the agent.
      await launches.giveToAgent(sandbox.container);
      return result;
    });
  }

  /** Puts a sandbox on the image with the result of a script. */
  private async install(
    options: RunScriptOptions,
    profile: Profile,
    sandbox: RunningSandbox,
    { layers, sandboxes, preflight }: Installation,
  ): Promise<ScriptResult> {
    const { sandboxId, script, env = {}, signal, onBuild, shared } = options;
    const image =
      shared === undefined
        ? sandbox.image
        : await layers.prepared(await preflight.check(signal), sandboxId);
    const network = shared?.network ?? (await sandboxes.policy(sandbox.relay));
    const layer: Layer = { image, script, profile, env, network, scope: shared?.scope };
    const built = await layers.built(layer, sandboxId, signal, onBuild);
    if ('failed' in built) return built.failed;
    if (built.image !== sandbox.image) await sandboxes.replaceImage(sandboxId, built.image);
    return { exitCode: 0, outputTail: '' };
  }

  async providePrograms(options: ProvideProgramsOptions): Promise<void> {
    await this.inside(options, (sandbox, installation) =>
      provideProgramLayer(sandbox, installation, options),
    );
  }

  /** Connects to the installation's gateway, with the protocol of gateway/protocol.ts. */
  async connectGateway(): Promise<Duplex> {
    const { gateway } = await this.parts();
    return gateway.connect();
  }

  override async launch(options: LaunchOptions): Promise<void> {
    try {
      await super.launch(options);
    } catch (error) {
      const { cause } = error as SandboxError;
      if (cause === undefined || !isEngineAway(cause)) throw error;
      // Also if this attempt failed, because the launch's state is unknown and the sandbox may hold files of earlier
      // turns.
      throw new SandboxError('unavailable', (error as Error).message, { cause: error });
    }
  }

  protected override async launchRequest(
    options: LaunchOptions,
    { sandboxes, gateway, launches }: Installation,
  ): Promise<LaunchRequest> {
    const { sandboxId, signal } = options;
    const { host } = this.options.engine;
    const sandbox = await inTime(sandboxes.running(sandboxId), { host, signal });
    await inTime(gateway.ensure(), { host, signal });
    return launches.request(sandbox, options, 'agent');
  }

  override async discardSpool(options: LaunchRef): Promise<void> {
    const logRefusals = async ({ relay }: RunningSandbox, { readRefusals }: Installation) => {
      for (const refusal of await readRefusals(relay)) {
        this.options.logger?.debug(`Sandbox ${options.sandboxId} was refused ${refusal}`);
      }
    };
    await this.inside(options, logRefusals).catch(ignoreGone);
    await super.discardSpool(options);
  }

  async exists(options: SandboxRef): Promise<Existence> {
    const sandboxId = requireId(options.sandboxId);
    try {
      const there = await this.askInTime(options.signal, ({ sandboxes }) =>
        sandboxes.exists(sandboxId),
      );
      return there ? 'yes' : 'no';
    } catch (error) {
      if (error instanceof SandboxError && error.kind === 'aborted') throw error;
      // Any other error does not mean that there is no sandbox.
      return 'unknown';
    }
  }

  async destroy(options: SandboxRef): Promise<void> {
    const sandboxId = requireId(options.sandboxId);
    await this.askInTime(options.signal, async ({ sandboxes, remote }) => {
      await remote.forget(sandboxId);
      await sandboxes.destroy(sandboxId);
    });
  }

  async list({ signal }: { signal: AbortSignal }): Promise<string[]> {
    return this.askInTime(signal, ({ sandboxes }) => sandboxes.list());
  }

  sharesSetups(): Promise<boolean> {
    return Promise.resolve(true);
  }

  async storage({ signal }: { signal: AbortSignal }): Promise<readonly string[]> {
    // A remote engine has its own disk, whose free space it does not report.
    if (!this.options.engine.host.startsWith('unix:')) return [];
    // With its own time limit: callers share the request, and a hanging one must not block all later callers.
    const own = { host: this.options.engine.host, signal: AbortSignal.timeout(ROOT_LIMIT_MS) };
    const ask = () => this.ask(own.signal, ({ root }) => root(own.signal));
    this.root ??= inTime(ask(), own).catch((error: unknown) => {
      this.root = undefined;
      throw error;
    });
    return [await inTime(this.root, { host: this.options.engine.host, signal })];
  }

  async diskLimit({ signal }: { signal: AbortSignal }): Promise<DiskLimit> {
    return this.ask(signal, async ({ preflight, quotas }) =>
      quotas.limit(await preflight.check(signal)),
    );
  }

  protected override make(): Promise<Installation> {
    return connectInstallation(this.options);
  }

  protected override release({ gateway }: Installation): Promise<void> {
    return gateway.close();
  }

  protected override explain(error: unknown): SandboxError {
    return translate(error, this.options.engine.host);
  }

  /**
   * Like {@link ask}, for requests that are harmless if they are carried out late, so that it does not wait for a hung
   * engine.
   */
  private askInTime<T>(
    signal: AbortSignal,
    work: (installation: Installation) => Promise<T>,
  ): Promise<T> {
    const { host } = this.options.engine;
    return this.ask(signal, (installation) => inTime(work(installation), { host, signal }));
  }

  /** Runs `work` in an existing sandbox with its containers running. */
  private async inside<T>(
    { sandboxId, signal }: SandboxRef,
    work: (sandbox: RunningSandbox, installation: Installation) => Promise<T>,
  ): Promise<T> {
    requireId(sandboxId);
    return this.ask(signal, async (installation) =>
      work(await installation.sandboxes.running(sandboxId), installation),
    );
  }

  private requireApplicable(policy: NetworkPolicy): void {
    try {
      const { gateways, gatewayConfig } = this.options;
      void new Relay({ policy, gateways, privateHosts: gatewayConfig.network?.privateHosts });
    } catch (error) {
      const cause = (error as Error).message;
      throw new SandboxError('failed', `the network policy cannot be applied: ${cause}`, {
        cause: error,
      });
    }
  }
}
