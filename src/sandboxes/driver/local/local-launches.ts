import { stat } from 'node:fs/promises';
import { confine, confineProgram } from '../../../supervisor/confine.js';
import { sweepLaunch } from '../../../supervisor/launch-end.js';
import type { FileCall } from '../../../supervisor/files/file-call.js';
import type { LaunchFolder } from '../../../supervisor/launch-folder.js';
import type { LaunchRequest } from '../../../supervisor/launch-request.js';
import { packFiles } from '../../../supervisor/packed-files.js';
import type { Item } from '../../../supervisor/protocol/frames.js';
import { readRefusals } from '../../../supervisor/refusals.js';
import { requireId, requireNotAborted, UnknownState } from '../../../supervisor/sandbox-error.js';
import { seccompFilter, type SeccompProfile } from '../../../supervisor/seccomp/profiles.js';
import { scriptCommand } from '../../../supervisor/scripts.js';
import { prepareLaunchFolder } from '../../../supervisor/start.js';
import { FolderSupervisor } from '../../../supervisor/supervisor.js';
import { packageRoot } from '../../../common/package-root.js';
import type {
  LaunchOptions,
  LaunchRef,
  ProvideProgramsOptions,
  RunScriptOptions,
  SandboxFile,
  SandboxRef,
  ScriptResult,
} from '../sandbox-driver.js';
import type { SandboxGroups } from './cgroups/sandbox-groups.js';
import type { Isolation } from './isolation.js';
import { openInside, runInside, startSupervisor } from './start-supervisor.js';
import { type LocalSandboxOptions, requireBuild } from './options.js';
import type { ProgramStore } from './programs.js';
import type { SandboxFolder, SandboxRecord, SandboxStore } from './sandbox-store.js';
import type { Launcher } from './launcher/launcher.js';

type LaunchId = Pick<LaunchRef, 'sandboxId' | 'launchId'>;
/** What a launch of this machine is started with, besides its request. */
type Started = Awaited<ReturnType<LocalLaunches['prepare']>>;

/** What runs in the sandboxes of this machine, each launch under a supervisor of its own. */
export class LocalLaunches {
  constructor(
    private readonly options: LocalSandboxOptions,
    private readonly store: SandboxStore,
    private readonly isolation: Isolation,
    private readonly programs: ProgramStore,
    private readonly launcher: Launcher,
    private readonly groups: SandboxGroups,
  ) {}

  folder({ sandboxId, launchId }: LaunchId): LaunchFolder {
    return this.store.folder(requireId(sandboxId)).launch(requireId(launchId));
  }

  async launch(options: LaunchOptions): Promise<void> {
    requireNotAborted(options.signal);
    const record = await this.store.require(requireId(options.sandboxId));
    if (this.folder(options).readStart() !== null) return;
    const started = await this.prepare(options, record, 'agent');
    const supervisor = this.supervisor(options.sandboxId, started);
    await supervisor.launch({ ...options, request: started.request });
  }

  async runScript(options: RunScriptOptions & LaunchId): Promise<ScriptResult> {
    requireNotAborted(options.signal);
    const record = await this.store.require(requireId(options.sandboxId));
    const profile = options.as === 'setup' && record.writableRoot ? 'setup' : 'agent';
    const { env = {} } = options;
    const command = { ...options, ...scriptCommand(options.script), env };
    const started = await this.prepare(command, record, profile);
    const supervisor = this.supervisor(options.sandboxId, started);
    return supervisor.run({ ...options, request: started.request });
  }

  async writeFiles(options: SandboxRef & { files: readonly SandboxFile[] }): Promise<void> {
    const { sandboxId, signal } = options;
    await this.store.require(requireId(sandboxId));
    const { home, workspace } = this.isolation.layout(this.store.folder(sandboxId));
    const files = packFiles(options.files, [home, workspace]);
    if (files.length > 0) await this.supervisor(sandboxId).write({ files, home, signal });
  }

  async *files(options: SandboxRef & FileCall): AsyncGenerator<Item, void, undefined> {
    const { sandboxId, signal } = options;
    requireNotAborted(signal);
    await this.store.require(requireId(sandboxId));
    const roots = this.isolation.layout(this.store.folder(sandboxId));
    yield* this.supervisor(sandboxId).files({ ...options, roots });
  }

  /** Does the sandbox have all of these programs itself? */
  hasPrograms({ sandboxId, programs, signal }: ProvideProgramsOptions): Promise<boolean> {
    const names = programs.map(({ bin }) => bin);
    return this.supervisor(sandboxId).hasPrograms({ names, environment: {}, signal });
  }

  /** @param started the prepared launch; only needed to start one. @returns the supervisor of the sandbox */
  supervisor(sandboxId: string, started?: Started): FolderSupervisor {
    const { launches } = this.store.folder(requireId(sandboxId));
    return new FolderSupervisor({
      folders: launches,
      prepare: (folder) => prepareLaunchFolder(folder, started?.user ?? null),
      start: async (folder, request, signal) => {
        if (started === undefined) throw new Error('nothing was prepared for a launch');
        const { prefix, view, seen } = started;
        return startSupervisor({
          launcher: this.launcher,
          prefix,
          view,
          folder,
          seen,
          request,
          signal,
        });
      },
      clearUp: async (launchId, unsupervised) => {
        await this.groups.destroy(groupOf({ sandboxId, launchId }));
        if (unsupervised) await this.sweep({ sandboxId, launchId });
      },
      asAgent: async ({ task, operands, stdin }, signal) => {
        const record = await this.store.require(sandboxId);
        const folder = this.store.folder(sandboxId);
        const inside = this.isolation.inside(folder, record, { ...task, operands });
        return runInside(this.launcher, { ...inside, stdin, signal });
      },
      openFiles: async () => {
        const record = await this.store.require(sandboxId);
        const folder = this.store.folder(sandboxId);
        const inside = this.isolation.inside(folder, record, { files: true });
        const socket = await openInside(this.launcher, inside);
        return { stdin: socket, stdout: socket };
      },
      disk: async () => {
        const record = await this.store.require(sandboxId);
        if (record.disk === 'image') return undefined;
        const limitBytes = this.options.limits.diskBytes + record.baseBytes;
        return { folders: ownFolders(this.store.folder(sandboxId), record), limitBytes };
      },
      unknown: (launchId) =>
        new UnknownState(`launch ${launchId} of sandbox ${sandboxId}`, this.options.unknownStates),
    });
  }

  /** Bytes of the spool behind an offset. */
  async backlog(options: LaunchRef & { offset: number }): Promise<number> {
    const spool = await stat(this.folder(options).spool).catch(() => undefined);
    return Math.max(0, (spool?.size ?? 0) - options.offset);
  }

  async discardSpool(options: LaunchRef): Promise<void> {
    for (const refusal of readRefusals(this.folder(options))) {
      this.options.logger?.debug(`Sandbox ${options.sandboxId} was refused ${refusal}`);
    }
    await this.supervisor(options.sandboxId).discard(options);
  }

  private async prepare(options: LaunchOptions, record: SandboxRecord, profile: SeccompProfile) {
    requireBuild();
    const { limits, cpus } = this.options;
    const sandbox = this.store.folder(options.sandboxId);
    await this.options.gateway?.ensure();
    const programs = await this.programs.folder(record.programs, options.signal);
    const { prefix, view, stage, environment } = this.isolation.isolate(
      sandbox,
      record,
      profile,
      programs,
    );
    const user = this.isolation.supervisorUser(record);
    const seen = sandbox.seenAt(view.sandbox);
    const groups = await this.groups.make(groupOf(options), limits, cpus, user);
    const request: LaunchRequest = {
      command: options.command,
      environment: { ...environment, ...options.env },
      stdin: options.stdin,
      cwd: options.cwd ?? this.isolation.layout(sandbox).workspace,
      deadline: options.deadline,
      outputLimit: options.outputLimit,
      limits: { ...limits, diskBytes: limits.diskBytes + record.baseBytes },
      owner: null,
      scratchFolders: stage.kind === 'strict' ? ['/run', '/dev/shm'] : [],
      seccomp: seccompFilter(profile, process.arch).toString('base64'),
      cgroups: groups?.launch ?? null,
      disk:
        record.disk === 'image'
          ? { kind: 'volume', path: record.stack === undefined ? seen.files : seen.disk }
          : { kind: 'folders', folders: ownFolders(seen, record) },
      stage,
    };
    const joined = groups?.supervisor ?? [];
    const outermost =
      joined.length === 0 ? [] : confine(confineProgram(packageRoot()), { cgroups: joined });
    return {
      request,
      user,
      view,
      prefix: [...outermost, ...prefix],
      seen: seen.launch(options.launchId).path,
    };
  }

  /** Without namespaces nothing dies by itself with a supervisor. */
  private async sweep(launch: LaunchId): Promise<void> {
    if (this.options.isolation === 'strict') return;
    const record = await this.store.read(launch.sandboxId);
    if (record === null) return;
    await sweepLaunch(this.folder(launch), record.uid);
  }
}

/** The folders with the files of a sandbox that has no file system of its own. */
function ownFolders(
  folder: SandboxFolder,
  record: Pick<SandboxRecord, 'writableRoot'>,
): [string, ...string[]] {
  const { home, workspace, tmp, rootfs } = folder;
  return [home, workspace, tmp, ...(record.writableRoot ? [rootfs] : [])];
}

/** The name of a launch's control groups. */
function groupOf({ sandboxId, launchId }: LaunchId): string {
  return `${sandboxId}.${launchId}`;
}
