import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { rm, stat } from 'node:fs/promises';
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
import { isId, requireId } from './ids.js';
import { runInside } from './inside.js';
import { readPackageHosts } from './package-hosts.js';
import { lookUp, ProgramStore } from './programs/program-store.js';
import { prepareLaunchFolder, startSupervisor } from './launcher.js';
import { endLaunch, killSupervisors, sweepLaunch, sweepUser } from './launch-end.js';
import type { LocalSandboxOptions } from './options.js';
import { readRefusals } from './refusals.js';
import { copyOwnSystem } from './own-system.js';
import { requireBuild } from './paths.js';
import { checkDegraded, checkStrict } from './preflight.js';
import { identifyProcess, type ProcessIdentity } from './process-identity.js';
import { SandboxFolder, SandboxStore, type SandboxRecord } from './sandbox-store.js';
import { endScripts, markScript, runLaunchedScript } from './scripts.js';
import { urlInside } from './relay/gateways.js';
import type { SeccompProfile } from './seccomp/profiles.js';
import { followSpool } from './spool-reader.js';
import { firstUserOf, UserPool } from './user-pool.js';
import { packFiles, WRITE_FILES_SCRIPT } from './write-files-script.js';

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
  private readonly store: SandboxStore;
  private readonly enclosure: Enclosure;
  private readonly programs: ProgramStore;
  private users: UserPool | null | undefined;
  private checkedAt = 0;
  private prepared: Promise<void> | undefined;

  constructor(private readonly options: LocalSandboxOptions) {
    const complete = { ...options, nodePath: options.nodePath ?? process.execPath };
    this.store = new SandboxStore(options.stateDir);
    this.programs = new ProgramStore(this.host, options, () => this.userPool()?.probeUser ?? null);
    this.enclosure =
      options.isolation === 'strict'
        ? new StrictEnclosure(this.host, complete, this.etc)
        : new DegradedEnclosure(this.host, complete);
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
        enclosure: this.enclosure,
        probeFolder: join(this.options.stateDir, '.probe'),
        user: this.userPool()?.probeUser ?? null,
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
    const uid = present?.uid ?? (await this.userPool()?.claim(sandboxId)) ?? null;
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
    const result = await runInside({ ...inside, stdin, signal: options.signal });
    if (result.exitCode === 0) return;
    throw new SandboxError('failed', `files could not be written: ${result.output.slice(-300)}`);
  }

  async runScript(options: RunScriptOptions): Promise<ScriptResult> {
    const record = await this.store.require(requireId(options.sandboxId));
    const profile = options.as === 'setup' && record.writableRoot ? 'setup' : 'agent';
    const ref = { sandboxId: options.sandboxId, launchId: randomUUID(), signal: options.signal };
    await endScripts(this.store.folder(ref.sandboxId));
    await prepareLaunchFolder(this.launchFolder(ref), this.enclosure.supervisorUser(record));
    await markScript(this.launchFolder(ref));
    try {
      return await runLaunchedScript({
        script: options.script,
        signal: options.signal,
        start: (command) =>
          this.start(
            { ...ref, ...command, env: options.env ?? {} },
            profile,
            identifyProcess(process.pid),
          ),
        follow: (signal) => this.follow({ ...ref, signal, offset: 0 }),
        kill: () => this.kill({ ...ref, signal: new AbortController().signal }),
      });
    } finally {
      await rm(this.launchFolder(ref).path, { recursive: true, force: true });
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
    const { exitCode } = await runInside({ ...inside, stdin: Buffer.alloc(0), signal });
    if (exitCode === 0) return;
    await this.programs.folder(programs, signal);
    await this.store.write(options.sandboxId, { ...record, programs });
  }

  gatewayUrl(url: string): string {
    return this.options.isolation === 'strict' ? urlInside(this.options.gateways, url) : url;
  }

  async launch(options: LaunchOptions): Promise<void> {
    await this.start(options, 'agent', null);
  }

  async *follow(
    options: LaunchRef & { offset: number },
  ): AsyncGenerator<SpoolEvent, void, undefined> {
    const folder = this.launchFolder(options);
    // What was found lost must stay lost: nothing may start it after this.
    if (existsSync(folder.path) && folder.readStart() === null)
      folder.claimStart({ abandoned: true });
    for await (const event of followSpool(folder, options.offset, options.signal)) {
      if (event.kind === 'exit' && event.reason === 'lost') await this.sweepDegraded(options);
      yield event;
    }
  }

  async backlog(options: LaunchRef & { offset: number }): Promise<number> {
    const spool = await stat(this.launchFolder(options).spool).catch(() => undefined);
    return Math.max(0, (spool?.size ?? 0) - options.offset);
  }

  async kill(options: LaunchRef): Promise<void> {
    const folder = this.launchFolder(options);
    if (!existsSync(folder.path)) return;
    await endLaunch(folder);
    await this.sweepDegraded(options);
  }

  async discardSpool(options: LaunchRef): Promise<void> {
    const folder = this.launchFolder(options);
    for (const refusal of readRefusals(folder)) {
      this.options.logger?.debug(`Sandbox ${options.sandboxId} was refused ${refusal}`);
    }
    await Promise.all(
      ['spool', 'log', 'stdout', 'stderr'].map((name) =>
        rm(join(folder.path, name), { force: true }),
      ),
    );
  }

  async exists(options: SandboxRef): Promise<boolean> {
    return (await this.store.read(requireId(options.sandboxId))) !== null;
  }

  async destroy(options: SandboxRef): Promise<void> {
    const sandboxId = requireId(options.sandboxId);
    const folder = this.store.folder(sandboxId);
    await killSupervisors(folder);
    await this.sweepUsers(sandboxId);
    await this.store.withdraw(sandboxId);
    // A launch that was just being started may have slipped in before the folder went.
    await this.sweepUsers(sandboxId);
    await this.store.erase(sandboxId);
    await this.userPool()?.release(sandboxId);
  }

  async list(_options: { signal: AbortSignal }): Promise<string[]> {
    const claimed = (await this.userPool()?.sandboxes()) ?? [];
    return [...new Set([...(await this.store.list()), ...claimed.filter(isId)])];
  }

  async close(): Promise<void> {
    // Supervisors are nobody's children, and a follower owns its watcher and timer itself.
  }

  /** @param owner the process that the launch ends with, `null` for one that outlives the service */
  private async start(
    options: LaunchOptions,
    profile: SeccompProfile,
    owner: ProcessIdentity | null,
  ): Promise<void> {
    this.requireNotAborted(options.signal);
    const record = await this.store.require(requireId(options.sandboxId));
    const sandbox = this.store.folder(options.sandboxId);
    const folder = this.launchFolder(options);
    if (folder.readStart() !== null) return;
    requireBuild();
    const { limits } = this.options;
    const programs = await this.programs.folder(record.programs, options.signal);
    const { prefix, view, stage, environment } = this.enclosure.enclose(
      sandbox,
      record,
      profile,
      programs,
    );
    await prepareLaunchFolder(folder, this.enclosure.supervisorUser(record));
    const seen = new SandboxFolder(view.sandbox);
    await startSupervisor({
      prefix,
      view,
      folder,
      signal: options.signal,
      onAbort: () => endLaunch(folder),
      request: {
        folder: seen.launch(options.launchId).path,
        command: options.command,
        environment: { ...environment, ...options.env },
        stdin: options.stdin,
        cwd: options.cwd ?? this.enclosure.layout(sandbox).workspace,
        deadline: options.deadline,
        outputLimit: options.outputLimit,
        limits: { ...limits, diskBytes: limits.diskBytes + record.baseBytes },
        owner,
        countedFolders: [seen.home, seen.workspace, ...(record.writableRoot ? [seen.rootfs] : [])],
        stage,
      },
    });
  }

  private async sweepUsers(sandboxId: string): Promise<void> {
    const pool = this.userPool();
    for (const uid of (await pool?.find(sandboxId)) ?? []) {
      await sweepUser(uid, async () => (await pool?.holds(sandboxId, uid)) ?? false);
    }
  }

  /** Without namespaces nothing dies by itself with a supervisor. */
  private async sweepDegraded({
    sandboxId,
    launchId,
  }: Pick<LaunchRef, 'sandboxId' | 'launchId'>): Promise<void> {
    if (this.options.isolation === 'strict') return;
    const record = await this.store.read(sandboxId);
    if (record === null) return;
    sweepLaunch(this.launchFolder({ sandboxId, launchId }), record.uid);
  }

  private launchFolder({ sandboxId, launchId }: Pick<LaunchRef, 'sandboxId' | 'launchId'>) {
    return this.store.folder(requireId(sandboxId)).launch(requireId(launchId));
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

  private userPool(): UserPool | null {
    if (this.users === undefined) {
      const { stateDir } = this.options;
      this.users = this.host.root
        ? new UserPool(join(stateDir, '.uids'), firstUserOf(stateDir))
        : null;
    }
    return this.users;
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
