import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
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
import { writeIdentityFiles } from './base-files.js';
import { DegradedEnclosure, relayFor, StrictEnclosure, type Enclosure } from './enclosure.js';
import { inspectHost, type Host } from './host.js';
import { isId, requireId } from '../shared/ids.js';
import { runInside } from './inside.js';
import { readPackageHosts } from '../shared/package-hosts.js';
import { lookUp, ProgramStore } from './programs/program-store.js';
import { prepareLaunchFolder } from './launcher.js';
import { LocalLaunches } from './local-launches.js';
import { killSupervisors } from '../shared/launch/launch-end.js';
import type { LocalSandboxOptions } from './options.js';
import { copyOwnSystem } from './own-system.js';
import { checkDegraded, checkStrict } from './preflight.js';
import { identifyProcess } from '../shared/launch/process-identity.js';
import { SandboxStore, type SandboxRecord } from './sandbox-store.js';
import { Spawner } from './spawner/spawner.js';
import { endScripts, markScript, runLaunchedScript } from '../shared/launch/scripts.js';
import { urlInside } from '../shared/relay/gateways.js';
import { SandboxUsers } from './sandbox-users.js';
import { packFiles, WRITE_FILES_SCRIPT } from '../shared/write-files-script.js';

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
  private readonly spawner: Spawner;
  private readonly store: SandboxStore;
  private readonly enclosure: Enclosure;
  private readonly programs: ProgramStore;
  private readonly launches: LocalLaunches;
  private readonly users: SandboxUsers;
  private checkedAt = 0;
  private prepared: Promise<void> | undefined;

  constructor(private readonly options: LocalSandboxOptions) {
    const complete = { ...options, nodePath: options.nodePath ?? process.execPath };
    this.users = new SandboxUsers(this.host.root, options.stateDir);
    this.spawner = new Spawner(complete.nodePath);
    this.store = new SandboxStore(options.stateDir, this.spawner);
    this.programs = new ProgramStore(this.host, this.spawner, options, () => this.users.probeUser);
    this.enclosure =
      options.isolation === 'strict'
        ? new StrictEnclosure(this.host, complete, this.etc)
        : new DegradedEnclosure(this.host, complete);
    this.launches = new LocalLaunches(
      options,
      this.store,
      this.enclosure,
      this.programs,
      this.spawner,
    );
  }

  layout(sandboxId: string): SandboxLayout {
    return this.enclosure.layout(this.store.folder(requireId(sandboxId)));
  }

  async preflight({ signal }: { signal: AbortSignal }): Promise<void> {
    if (Date.now() - this.checkedAt < PREFLIGHT_VALID_MS) return;
    await this.prepare();
    if (this.options.isolation === 'degraded') checkDegraded(this.host, this.options);
    else {
      await checkStrict({
        host: this.host,
        spawner: this.spawner,
        enclosure: this.enclosure,
        probeFolder: join(this.options.stateDir, '.probe'),
        user: this.users.probeUser,
        signal,
      });
    }
    this.checkedAt = Date.now();
  }

  async create(options: CreateSandboxOptions): Promise<void> {
    const { network, writableRoot, signal } = options;
    const sandboxId = requireId(options.sandboxId);
    this.requireSupported(network);
    this.requireNotAborted(signal);
    await this.prepare();
    const present = await this.store.read(sandboxId);
    const uid = present?.uid ?? (await this.users.claim(sandboxId));
    const record: SandboxRecord = {
      version: 1,
      uid,
      // Its own system once made is kept, whatever is asked for later.
      writableRoot: present?.writableRoot ?? (writableRoot && this.options.isolation === 'strict'),
      baseBytes: present?.baseBytes ?? 0,
      network,
    };
    await this.store.makeFolders(sandboxId, uid, this.enclosure.supervisorUser(record));
    if (record.writableRoot && present === null) {
      record.baseBytes = await copyOwnSystem({
        store: this.store,
        sandboxId,
        uid,
        templates: this.options.rootfsDir ?? join(this.options.stateDir, '.rootfs'),
        onProgress: (message) => this.options.logger?.debug(message),
        signal,
      });
    }
    this.requireNotAborted(signal);
    await this.store.write(sandboxId, record);
  }

  async packageHosts({ signal }: { signal: AbortSignal }): Promise<readonly string[]> {
    return readPackageHosts(signal);
  }

  async restrictNetwork(options: SandboxRef & { network: NetworkPolicy }): Promise<void> {
    this.requireSupported(options.network);
    const record = await this.store.require(requireId(options.sandboxId));
    await this.store.write(options.sandboxId, { ...record, network: options.network });
  }

  async writeFiles(options: SandboxRef & { files: readonly SandboxFile[] }): Promise<void> {
    const record = await this.store.require(requireId(options.sandboxId));
    const folder = this.store.folder(options.sandboxId);
    const { home, workspace } = this.enclosure.layout(folder);
    const stdin = packFiles(options.files, [home, workspace]);
    if (stdin.length === 0) return;
    // Without --norc, bash takes a socket on its input for a remote shell and runs the agent's ~/.bashrc first.
    const command = ['/bin/bash', '--norc', '-c', WRITE_FILES_SCRIPT, 'bash', home];
    const inside = this.enclosure.inside(folder, record, command);
    const result = await runInside(this.spawner, { ...inside, stdin, signal: options.signal });
    if (result.exitCode === 0) return;
    throw new SandboxError('failed', `files could not be written: ${result.output.slice(-300)}`);
  }

  async runScript(options: RunScriptOptions): Promise<ScriptResult> {
    const record = await this.store.require(requireId(options.sandboxId));
    const profile = options.as === 'setup' && record.writableRoot ? 'setup' : 'agent';
    const ref = { sandboxId: options.sandboxId, launchId: randomUUID(), signal: options.signal };
    const folder = this.launches.folder(ref);
    await endScripts(this.store.folder(ref.sandboxId).launches);
    await prepareLaunchFolder(folder, this.enclosure.supervisorUser(record));
    await markScript(folder);
    try {
      return await runLaunchedScript({
        script: options.script,
        signal: options.signal,
        start: (command) =>
          this.launches.start(
            { ...ref, ...command, env: options.env ?? {} },
            profile,
            identifyProcess(process.pid),
          ),
        follow: (signal) => this.follow({ ...ref, signal, offset: 0 }),
        kill: () => this.kill({ ...ref, signal: new AbortController().signal }),
      });
    } finally {
      await this.launches.remove(ref);
    }
  }

  async providePrograms(options: SandboxRef & { programs: readonly NpmProgram[] }): Promise<void> {
    const { programs, signal } = options;
    const record = await this.store.require(requireId(options.sandboxId));
    const inside = this.enclosure.inside(
      this.store.folder(options.sandboxId),
      record,
      lookUp(programs.map((program) => program.bin)),
    );
    const { exitCode } = await runInside(this.spawner, {
      ...inside,
      stdin: Buffer.alloc(0),
      signal,
    });
    if (exitCode === 0) return;
    await this.programs.folder(programs, signal);
    await this.store.write(options.sandboxId, { ...record, programs });
  }

  gatewayUrl(url: string): string {
    return this.options.isolation === 'strict' ? urlInside(this.options.gateways, url) : url;
  }

  async launch(options: LaunchOptions): Promise<void> {
    await this.launches.start(options, 'agent', null);
  }

  follow(options: LaunchRef & { offset: number }): AsyncGenerator<SpoolEvent, void, undefined> {
    return this.launches.follow(options);
  }

  backlog(options: LaunchRef & { offset: number }): Promise<number> {
    return this.launches.backlog(options);
  }

  async kill(options: LaunchRef): Promise<void> {
    await this.launches.kill(options);
  }

  async discardSpool(options: LaunchRef): Promise<void> {
    await this.launches.discardSpool(options);
  }

  async exists(options: SandboxRef): Promise<boolean> {
    return (await this.store.read(requireId(options.sandboxId))) !== null;
  }

  async destroy(options: SandboxRef): Promise<void> {
    const sandboxId = requireId(options.sandboxId);
    await killSupervisors(this.store.folder(sandboxId).launches);
    await this.users.sweep(sandboxId);
    await this.store.withdraw(sandboxId);
    // A launch that was just being started may have slipped in before the folder went.
    await this.users.sweep(sandboxId);
    await this.store.erase(sandboxId);
    await this.users.release(sandboxId);
  }

  async list(_options: { signal: AbortSignal }): Promise<string[]> {
    const claimed = await this.users.sandboxes();
    return [...new Set([...(await this.store.list()), ...claimed.filter(isId)])];
  }

  async close(): Promise<void> {
    // Supervisors are nobody's children, and a follower owns its watcher and timer itself.
    await this.spawner.close();
  }

  private get etc(): string {
    return join(this.options.stateDir, '.etc');
  }

  private prepare(): Promise<void> {
    this.prepared ??= (async () => {
      await this.store.prepare();
      await writeIdentityFiles(this.etc);
    })().catch((error: unknown) => {
      this.prepared = undefined;
      throw error;
    });
    return this.prepared;
  }

  private requireSupported(network: NetworkPolicy): void {
    if (this.options.isolation === 'strict') {
      relayFor(network, this.options.gateways);
      return;
    }
    if (network.mode === 'unrestricted') return;
    throw new SandboxError(
      'unsupported',
      'limited networking needs SANDBOX_ISOLATION=strict: without namespaces nothing would enforce it',
    );
  }

  private requireNotAborted(signal: AbortSignal): void {
    if (signal.aborted) throw new SandboxError('aborted', 'the operation was aborted');
  }
}
