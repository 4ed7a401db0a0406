import { randomUUID } from 'node:crypto';
import type { Duplex } from 'node:stream';
import type { ExportedMetric } from '../../../gateway/broker/broker-stats.js';
import type { LaunchRequest } from '../../../supervisor/launch-request.js';
import { PRINT_PACKAGE_SETTINGS, parsePackageSettings } from '../../../supervisor/package-hosts.js';
import { requireId, requireNotAborted, SandboxError } from '../../../supervisor/sandbox-error.js';
import { SYSTEM_PATH } from '../../../supervisor/sandbox-options.js';
import { provideProgramsInside } from '../programs-inside.js';
import { RemoteLaunches } from '../remote-launches.js';
import { type RemoteParts, RemoteSandboxDriver } from '../remote-sandbox-driver.js';
import type {
  CreateSandboxOptions,
  DiskLimit,
  Existence,
  GatewayAccess,
  LaunchOptions,
  LimitReport,
  NetworkPolicy,
  ProvideProgramsOptions,
  RunScriptOptions,
  SandboxRef,
  ScriptResult,
} from '../sandbox-driver.js';
import { SpriteNames, type SpritesOptions } from './options.js';
import { agentEnvironment, launchRequest, scriptRequest, type Profile } from './sprite-launches.js';
import { SpriteInstaller } from './sprite-installer.js';
import { SpriteRequests } from './sprite-requests.js';
import { SpriteRuntime } from './sprite-runtime.js';
import { SpriteSetups } from './sprite-setups.js';
import { Sprites } from './sprites.js';
import { SpritesApi } from './sprites-api.js';
import { SpritesPreflight } from './sprites-preflight.js';

const GATEWAY_MS = 10_000;
/**
 * How long a supervisor may take to kill a launch before the sprite is restarted. A sprite that slept for long needs
 * seconds until its supervisor answers, and restarting it ends other launches as lost.
 */
const KILL_MS = 10_000;

/** The parts that need the installation's id. */
interface Parts extends RemoteParts {
  runtime: SpriteRuntime;
  sprites: Sprites;
  setups: SpriteSetups;
}

/**
 * Sandboxes as micro-VMs of Sprites, which sleep while they are not used. Every worker reaches every sprite.
 *
 * Limitations beyond those in the port: the network policy works by name at the vendor, so refusals are not logged, and
 * ports are not restricted. The disk is counted, except what setup scripts install. Setup scripts run as root of the
 * machine, with the capabilities of a container's root. A launch that runs when a machine loses its processes ends as
 * lost.
 */
export class SpritesSandboxDriver extends RemoteSandboxDriver<Parts> {
  readonly name = 'sprites';
  private readonly api: SpritesApi;
  /** What package managers in the vendor's image install from, as a new sprite said. */
  private imageHosts: readonly string[] | undefined;
  private readonly reachable: SpritesPreflight;

  constructor(private readonly options: SpritesOptions) {
    super();
    this.api = new SpritesApi(options.access);
    const check = async (signal: AbortSignal) => (await this.parts()).sprites.check(signal);
    this.reachable = new SpritesPreflight(options, this.api.host, check);
  }

  async preflight({ signal }: { signal: AbortSignal }): Promise<void> {
    requireNotAborted(signal);
    await this.reachable.run();
  }

  async limits(): Promise<LimitReport> {
    // The machine is the sandbox's alone.
    return { memory: 'monitored', processes: 'hard', cpu: 'hard', disk: 'monitored' };
  }

  async diskLimit(): Promise<DiskLimit> {
    return { kind: 'monitored', by: 'the supervisor in each sprite' };
  }

  async create(options: CreateSandboxOptions): Promise<void> {
    requireNotAborted(options.signal);
    const sandboxId = requireId(options.sandboxId);
    this.requireApplicable(options.network);
    const { sprites } = await this.parts();
    const isNew = await sprites.create({ ...options, sandboxId });
    // The next one who needs them asks again.
    if (isNew) this.imageHosts ??= await this.hostsIn(options).catch(() => undefined);
  }

  async packageHosts(sandbox: SandboxRef): Promise<readonly string[]> {
    return this.imageHosts ?? this.hostsIn(sandbox);
  }

  async restrictNetwork(options: SandboxRef & { network: NetworkPolicy }): Promise<void> {
    const { network, signal } = options;
    const sandboxId = requireId(options.sandboxId);
    this.requireApplicable(network);
    const { sprites } = await this.parts();
    await sprites.restrict(sandboxId, network, signal);
  }

  async runScript(options: RunScriptOptions): Promise<ScriptResult> {
    const { as, script, env = {}, signal } = options;
    const sandboxId = requireId(options.sandboxId);
    const { sprites, setups } = await this.parts();
    const made = as === 'setup' ? await sprites.madeWith(sandboxId, signal) : undefined;
    if (!made?.writableRoot) return this.script(sandboxId, script, env, 'agent', signal);
    const run = () => this.script(sandboxId, script, env, 'setup', signal);
    return setups.run({ ...options, limited: made.limited }, run);
  }

  async providePrograms(options: ProvideProgramsOptions): Promise<void> {
    const { signal } = options;
    const sandboxId = requireId(options.sandboxId);
    const environment = agentEnvironment();
    await this.ask(signal, ({ remote, sprites }) =>
      provideProgramsInside(options, {
        hasPrograms: (names) =>
          remote.supervisor(sandboxId).hasPrograms({ names, environment, signal }),
        packageHosts: () => this.packageHosts(options),
        restrict: (network, limit) => sprites.restrict(sandboxId, network, limit),
        run: (script) => this.script(sandboxId, script, {}, 'setup', signal),
        withoutNpm: 'the sprite has neither PROGRAMS nor npm to install it with',
      }),
    );
  }

  override async gateway(): Promise<GatewayAccess> {
    return { ...(await super.gateway()), isMissing: this.options.gateway === undefined };
  }

  metrics(): readonly ExportedMetric[] {
    return this.api.stats.export();
  }

  async gatewayAddresses(): Promise<readonly string[]> {
    return (await this.options.gateway?.remote?.addresses()) ?? [];
  }

  async connectGateway(address = ''): Promise<Duplex> {
    const remote = this.options.gateway?.remote;
    if (remote === undefined) throw new Error('there is no gateway: set GATEWAY_URL');
    return remote.connect(address, AbortSignal.timeout(GATEWAY_MS));
  }

  async exists({ sandboxId, signal }: SandboxRef): Promise<Existence> {
    requireId(sandboxId);
    requireNotAborted(signal);
    const { sprites } = await this.parts();
    return sprites.exists(sandboxId, signal);
  }

  async destroy({ sandboxId, signal }: SandboxRef): Promise<void> {
    requireId(sandboxId);
    const { sprites, remote } = await this.parts();
    await remote.forget(sandboxId);
    await sprites.destroy(sandboxId, signal);
  }

  async list({ signal }: { signal: AbortSignal }): Promise<string[]> {
    const { sprites } = await this.parts();
    return sprites.list(signal);
  }

  override async close(): Promise<void> {
    this.api.close();
    await super.close();
  }

  protected override launchRequest(options: LaunchOptions, { runtime }: Parts): LaunchRequest {
    return launchRequest(options, this.options.limits, runtime.folder);
  }

  /**
   * What package managers in a sprite install from. Only root can change that there, so setup scripts may have, for their
   * own sprite, but no agent.
   */
  private async hostsIn({ sandboxId, signal }: SandboxRef): Promise<readonly string[]> {
    const env = { HOME: '/root', PATH: SYSTEM_PATH };
    const id = requireId(sandboxId);
    const said = await this.script(id, PRINT_PACKAGE_SETTINGS, env, 'setup', signal);
    try {
      return parsePackageSettings(said.outputTail);
    } catch (error) {
      throw new SandboxError('failed', (error as Error).message);
    }
  }

  private async script(
    sandboxId: string,
    script: string,
    env: Readonly<Record<string, string>>,
    profile: Profile,
    signal: AbortSignal,
  ): Promise<ScriptResult> {
    const launchId = randomUUID();
    return this.ask(signal, ({ remote, runtime }) => {
      const request = scriptRequest(script, env, profile, this.options.limits, runtime.folder);
      return remote.run(sandboxId, { launchId, request, signal });
    });
  }

  protected override async make(): Promise<Parts> {
    const { prefix, installation, gateway, unknownStates } = this.options;
    const names = new SpriteNames(prefix, await installation());
    const runtime = new SpriteRuntime(this.options.limits.diskBytes);
    const requests = new SpriteRequests(this.api, names);
    const installer = new SpriteInstaller(requests, runtime, gateway);
    const host = gateway && new URL(gateway.url).hostname;
    const sprites = new Sprites(requests, installer, runtime, host);
    const stop = (sandboxId: string) => sprites.restart(sandboxId, AbortSignal.timeout(60_000));
    const connect = (sandboxId: string) => sprites.connect(sandboxId);
    return {
      runtime,
      sprites,
      setups: new SpriteSetups(sprites, requests, installer, this.options.logger),
      remote: new RemoteLaunches({ connect, stop, killMs: KILL_MS }, unknownStates),
    };
  }

  private requireApplicable({ mode }: NetworkPolicy): void {
    if (mode === 'unrestricted' || this.options.gateway !== undefined) return;
    const message = 'a limited network needs the gateway: set GATEWAY_URL';
    throw new SandboxError('unsupported', message);
  }
}
