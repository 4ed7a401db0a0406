import { existsSync } from 'node:fs';
import { rm, stat } from 'node:fs/promises';
import type { LaunchOptions, LaunchRef, SpoolEvent } from '../sandbox-driver.js';
import { SandboxError } from '../sandbox-error.js';
import { requireId } from '../shared/ids.js';
import { endLaunch, sweepLaunch } from '../shared/launch/launch-end.js';
import type { LaunchFolder } from '../shared/launch/launch-folder.js';
import type { ProcessIdentity } from '../shared/launch/process-identity.js';
import { readRefusals } from '../shared/launch/refusals.js';
import type { SeccompProfile } from '../shared/seccomp/profiles.js';
import { followSpool } from '../shared/spool/spool-reader.js';
import type { Enclosure } from './enclosure.js';
import { prepareLaunchFolder, startSupervisor } from './launcher.js';
import type { LocalSandboxOptions } from './options.js';
import { requireBuild } from './paths.js';
import type { ProgramStore } from './programs/program-store.js';
import { SandboxFolder, type SandboxStore } from './sandbox-store.js';
import type { Spawner } from './spawner/spawner.js';

/** What runs in the sandboxes of this machine: started under a supervisor, followed by its spool, ended. */
export class LocalLaunches {
  constructor(
    private readonly options: LocalSandboxOptions,
    private readonly store: SandboxStore,
    private readonly enclosure: Enclosure,
    private readonly programs: ProgramStore,
    private readonly spawner: Spawner,
  ) {}

  folder({ sandboxId, launchId }: Pick<LaunchRef, 'sandboxId' | 'launchId'>): LaunchFolder {
    return this.store.folder(requireId(sandboxId)).launch(requireId(launchId));
  }

  /** @param owner the process that the launch ends with, `null` for one that outlives the service */
  async start(
    options: LaunchOptions,
    profile: SeccompProfile,
    owner: ProcessIdentity | null,
  ): Promise<void> {
    if (options.signal.aborted) throw new SandboxError('aborted', 'the operation was aborted');
    const record = await this.store.require(requireId(options.sandboxId));
    const sandbox = this.store.folder(options.sandboxId);
    const folder = this.folder(options);
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
      spawner: this.spawner,
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

  async *follow(
    options: LaunchRef & { offset: number },
  ): AsyncGenerator<SpoolEvent, void, undefined> {
    const folder = this.folder(options);
    for await (const event of followSpool(folder, options.offset, options.signal)) {
      if (event.kind === 'exit' && event.reason === 'lost') await this.sweep(options);
      yield event;
    }
  }

  /** Bytes of the spool behind an offset. */
  async backlog(options: LaunchRef & { offset: number }): Promise<number> {
    const spool = await stat(this.folder(options).spool).catch(() => undefined);
    return Math.max(0, (spool?.size ?? 0) - options.offset);
  }

  async kill(options: LaunchRef): Promise<void> {
    const folder = this.folder(options);
    if (!existsSync(folder.path)) return;
    await endLaunch(folder);
    await this.sweep(options);
  }

  async discardSpool(options: LaunchRef): Promise<void> {
    const folder = this.folder(options);
    for (const refusal of readRefusals(folder)) {
      this.options.logger?.debug(`Sandbox ${options.sandboxId} was refused ${refusal}`);
    }
    await folder.discardOutput();
  }

  /** Removes all that a launch left, its record as well. */
  async remove(options: Pick<LaunchRef, 'sandboxId' | 'launchId'>): Promise<void> {
    await rm(this.folder(options).path, { recursive: true, force: true });
  }

  /** Without namespaces nothing dies by itself with a supervisor. */
  private async sweep({
    sandboxId,
    launchId,
  }: Pick<LaunchRef, 'sandboxId' | 'launchId'>): Promise<void> {
    if (this.options.isolation === 'strict') return;
    const record = await this.store.read(sandboxId);
    if (record === null) return;
    sweepLaunch(this.folder({ sandboxId, launchId }), record.uid);
  }
}
