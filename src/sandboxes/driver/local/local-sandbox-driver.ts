import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import type {
  CreateSandboxOptions,
  DiskLimit,
  Existence,
  GatewayAccess,
  LaunchOptions,
  LaunchRef,
  NetworkPolicy,
  ProvideProgramsOptions,
  RunScriptOptions,
  SandboxDriver,
  SandboxFile,
  SandboxLayout,
  SandboxRef,
  ScriptResult,
  SpoolEvent,
  LimitReport,
} from '../sandbox-driver.js';
import {
  SandboxError,
  isId,
  requireId,
  requireNotAborted,
  asUnavailable,
  saysNothing,
} from '../../../supervisor/sandbox-error.js';
import type { ExportedMetric } from '../../../gateway/broker/broker-stats.js';
import type { FileCall } from '../../../supervisor/files/file-call.js';
import type { Item } from '../../../supervisor/protocol/frames.js';
import { writeIdentityFiles } from './base-files.js';
import { DiskImages } from './disk-images.js';
import { DegradedIsolation } from './degraded-isolation.js';
import { relayFor, type Isolation } from './isolation.js';
import { StrictIsolation } from './strict-isolation.js';
import { BuildSandboxes } from './layers/build-sandboxes.js';
import { EnvironmentLayers } from './layers/environment-layers.js';
import { LayerStore } from './layers/layer-store.js';
import { Stacks } from './layers/stacks.js';
import { inspectHost, type Host } from './host.js';
import { readPackageHosts } from '../../../supervisor/package-hosts.js';
import { ProgramStore } from './programs.js';
import { LocalLaunches } from './local-launches.js';
import { killSupervisors } from '../../../supervisor/launch-end.js';
import type { LocalSandboxOptions } from './options.js';
import { checkDegraded, checkStrict } from './preflight.js';
import { SandboxGroups } from './cgroups/sandbox-groups.js';
import { SandboxFurnishing } from './sandbox-furnishing.js';
import { SandboxStore } from './sandbox-store.js';
import { Launcher } from './launcher/launcher.js';
import { SingleFlight } from '../single-flight.js';
import { BROKER } from '../../../supervisor/relay/listener-plan.js';
import { SandboxUsers } from './user-pool.js';

/** A positive answer of the preflight holds for this long. */
const PREFLIGHT_VALID_MS = 20_000;

/**
 * Sandboxes on this machine. `strict`: Linux namespaces by bubblewrap, one kernel user per sandbox where the service is
 * root, a network that reaches names through a relay and nothing else. `degraded`: users and limits alone.
 *
 * Beyond what the port says, not guaranteed: with one kernel user for all (the service is an ordinary user) disk and
 * processes of two sandboxes are kept apart by namespaces alone; in `degraded` mode without root the agent may do what
 * the service's user may, reach any network, and hide a process that wipes its environment.
 */
export class LocalSandboxDriver implements SandboxDriver {
  readonly name = 'local';

  private readonly host: Host = inspectHost();
  private readonly launcher: Launcher;
  private readonly store: SandboxStore;
  private readonly images: DiskImages;
  private readonly isolation: Isolation;
  private readonly furnishing: SandboxFurnishing;
  private readonly launches: LocalLaunches;
  private readonly users: SandboxUsers;
  private readonly checks = new SingleFlight<void>();
  private readonly groups: SandboxGroups;
  private readonly builds: BuildSandboxes;
  private readonly scripts: EnvironmentLayers;
  private readonly stacks: Stacks;
  private checkedAt = 0;
  private prepared: Promise<void> | undefined;

  constructor(private readonly options: LocalSandboxOptions) {
    const complete = { ...options, nodePath: options.nodePath ?? process.execPath };
    this.users = new SandboxUsers(this.host.root, options.stateDir);
    this.launcher = new Launcher(complete.nodePath);
    this.store = new SandboxStore(options.stateDir, this.launcher);
    this.groups = new SandboxGroups(options.stateDir);
    this.images = new DiskImages(this.host, this.launcher, options.stateDir, options.logger);
    const programs = new ProgramStore(
      this.host,
      this.launcher,
      options,
      () => this.users.probeUser,
    );
    this.isolation =
      options.isolation === 'strict'
        ? new StrictIsolation(this.host, complete, this.etc)
        : new DegradedIsolation(this.host, complete, this.etc);
    const layers = new LayerStore(this.store, options.layers ?? { most: 20, seconds: 7 * 86_400 });
    this.stacks = new Stacks({
      ...{ host: this.host, launcher: this.launcher, store: this.store, images: this.images },
      ...{ layers, logger: options.logger },
    });
    this.furnishing = new SandboxFurnishing({
      options,
      store: this.store,
      users: this.users,
      images: this.images,
      isolation: this.isolation,
      programs,
      stacks: this.stacks,
      layers,
      launcher: this.launcher,
    });
    this.launches = new LocalLaunches(
      options,
      this.store,
      this.isolation,
      programs,
      this.launcher,
      this.groups,
    );
    this.builds = new BuildSandboxes(join(options.stateDir, '.builds'));
    this.scripts = new EnvironmentLayers({
      ...{ store: this.store, layers, stacks: this.stacks, furnishing: this.furnishing },
      ...{ launches: this.launches, builds: this.builds },
      buildLimitMs: options.buildLimitMs ?? 15 * 60_000,
      destroy: (sandboxId) => this.remove(sandboxId),
    });
  }

  layout(sandboxId: string): SandboxLayout {
    return this.isolation.layout(this.store.folder(requireId(sandboxId)));
  }

  async preflight({ signal }: { signal: AbortSignal }): Promise<void> {
    if (Date.now() - this.checkedAt < PREFLIGHT_VALID_MS) return;
    await this.checks.run(signal, (shared) => this.check(shared));
  }

  private async check(signal: AbortSignal): Promise<void> {
    await this.prepare();
    if (this.options.isolation === 'degraded') checkDegraded(this.host, this.options);
    else {
      await checkStrict({
        host: this.host,
        launcher: this.launcher,
        isolation: this.isolation,
        probeFolder: join(this.options.stateDir, '.probe'),
        user: this.users.probeUser,
        signal,
      });
    }
    await this.images.limit();
    this.checkedAt = Date.now();
  }

  async limits(_options: { signal: AbortSignal }): Promise<LimitReport> {
    const grouped = await this.groups.resources();
    // The kernel counts processes per user, and in strict sandboxes per namespace.
    const counted = this.options.isolation === 'strict' || this.host.root;
    const cpu = this.options.cpus === undefined ? 'shared' : 'hard';
    return {
      memory: grouped.has('memory') ? 'hard' : 'monitored',
      processes: grouped.has('processes') || counted ? 'hard' : 'unlimited',
      cpu: grouped.has('cpu') ? cpu : 'unlimited',
      disk: (await this.diskLimit()).kind,
    };
  }

  async create(options: CreateSandboxOptions): Promise<void> {
    requireId(options.sandboxId);
    this.requireSupported(options.network);
    requireNotAborted(options.signal);
    await this.prepare();
    await this.furnishing.create(options);
  }

  async packageHosts({ signal }: { signal: AbortSignal }): Promise<readonly string[]> {
    return readPackageHosts(signal);
  }

  async restrictNetwork(options: SandboxRef & { network: NetworkPolicy }): Promise<void> {
    this.requireSupported(options.network);
    const record = await this.store.require(requireId(options.sandboxId));
    await this.store.write(options.sandboxId, { ...record, network: options.network });
  }

  writeFiles(options: SandboxRef & { files: readonly SandboxFile[] }): Promise<void> {
    return this.launches.writeFiles(options);
  }

  files(options: SandboxRef & FileCall): AsyncGenerator<Item, void, undefined> {
    return this.launches.files(options);
  }

  async runScript(options: RunScriptOptions): Promise<ScriptResult> {
    return this.scripts.runScript(options);
  }

  async sharesSetups(): Promise<boolean> {
    await this.prepare();
    return this.stacks.supported();
  }

  prepareShared(options: {
    signal: AbortSignal;
    onProgress: (message: string) => void;
  }): Promise<void> {
    return this.furnishing.prepareShared(options);
  }

  async providePrograms(options: ProvideProgramsOptions): Promise<void> {
    if (await this.launches.hasPrograms(options)) return;
    await this.furnishing.providePrograms(options);
  }

  async gateway(): Promise<GatewayAccess> {
    if (this.options.isolation === 'strict') return { url: BROKER.url, identifies: true };
    const { listen } = this.options.gateway ?? {};
    return { url: `http://${listen?.host ?? '127.0.0.1'}:${listen?.port ?? 0}`, identifies: false };
  }

  async gatewayMetrics(): Promise<readonly ExportedMetric[]> {
    return (await this.options.gateway?.metrics()) ?? [];
  }

  async connectGateway(): Promise<Duplex> {
    if (this.options.gateway === undefined) throw new Error('there is no gateway');
    return this.options.gateway.connect();
  }

  async launch(options: LaunchOptions): Promise<void> {
    await this.launches.launch(options).catch((error: unknown) => {
      throw asUnavailable(error);
    });
  }

  follow(options: LaunchRef & { offset: number }): AsyncGenerator<SpoolEvent, void, undefined> {
    return this.launches.supervisor(options.sandboxId).follow(options);
  }

  backlog(options: LaunchRef & { offset: number }): Promise<number> {
    return this.launches.backlog(options);
  }

  async kill(options: LaunchRef): Promise<void> {
    await this.launches
      .supervisor(options.sandboxId)
      .kill(options)
      .catch((error: unknown) => {
        throw asUnavailable(error);
      });
  }

  async discardSpool(options: LaunchRef): Promise<void> {
    await this.launches.discardSpool(options);
  }

  async exists(options: SandboxRef): Promise<Existence> {
    const sandboxId = requireId(options.sandboxId);
    requireNotAborted(options.signal);
    try {
      return (await this.store.read(sandboxId)) === null ? 'no' : 'yes';
    } catch (error) {
      if (saysNothing(error)) return 'unknown';
      throw error;
    }
  }

  async destroy(options: SandboxRef): Promise<void> {
    await this.remove(requireId(options.sandboxId));
  }

  private async remove(sandboxId: string): Promise<void> {
    await killSupervisors(this.store.folder(sandboxId).launches);
    await this.users.sweep(sandboxId);
    await this.store.withdraw(sandboxId);
    // A launch that was just being started may have slipped in before the folder went.
    await this.users.sweep(sandboxId);
    await this.groups.removeOf(sandboxId);
    await this.store.erase(sandboxId);
    await this.users.release(sandboxId);
  }

  async list(_options: { signal: AbortSignal }): Promise<string[]> {
    try {
      const claimed = await this.users.sandboxes();
      const all = new Set([...(await this.store.list()), ...claimed.filter(isId)]);
      const building = await this.builds.active();
      return [...all].filter((id) => !building.has(id));
    } catch (error) {
      throw asUnavailable(error);
    }
  }

  async storage(): Promise<readonly string[]> {
    return [this.options.stateDir];
  }

  places(): Promise<{ taken: number; most: number } | undefined> {
    return this.users.places();
  }

  async diskLimit(): Promise<DiskLimit> {
    await this.prepare();
    return this.images.limit();
  }

  async close(): Promise<void> {
    this.options.gateway?.close();
    // Supervisors are nobody's children, and a follower owns its watcher and timer itself.
    await this.groups.close();
    await this.launcher.close();
  }

  private get etc(): string {
    return join(this.options.stateDir, '.etc');
  }

  private prepare(): Promise<void> {
    this.prepared ??= (async () => {
      await this.store.prepare();
      if (this.options.gateway) await mkdir(this.options.gateway.folder, { recursive: true });
      await writeIdentityFiles(this.etc, this.options.network?.certificates);
    })().catch((error: unknown) => {
      this.prepared = undefined;
      throw error;
    });
    return this.prepared;
  }

  private requireSupported(network: NetworkPolicy): void {
    if (this.options.isolation === 'strict') {
      relayFor(network, this.options);
      return;
    }
    if (network.mode === 'unrestricted') return;
    throw new SandboxError(
      'unsupported',
      'limited networking needs SANDBOX_ISOLATION=strict: without namespaces nothing would enforce it',
    );
  }
}
