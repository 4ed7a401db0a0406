import { rm } from 'node:fs/promises';
import { isThere } from '../common/missing-file.js';
import type { ScriptResult, SpoolEvent } from './calls.js';
import type { Confinement } from './confine.js';
import { callFiles, type FileCall, type FileRoots, type FileServer } from './files/file-call.js';
import type { Item } from './protocol/frames.js';
import { diskUsage } from './limits/disk-usage.js';
import { endLaunch, killWhenStopped } from './launch-end.js';
import type { LaunchFolder, LaunchFolders } from './launch-folder.js';
import type { LaunchAnswer, LaunchRequest } from './launch-request.js';
import { requireId, SandboxError, type UnknownState } from './sandbox-error.js';
import { identifyProcess } from './processes.js';
import { endScripts, markScript, scriptResult } from './scripts.js';
import { followSpool } from './spool-reader.js';

/** Identifies a launch: the turn's id, UUID v4, lowercase. */
export interface LaunchName {
  launchId: string;
  signal: AbortSignal;
}

/** A launch with its command. */
export interface NewLaunch extends LaunchName {
  request: LaunchRequest;
}

/**
 * The service's interface to a supervisor, which runs next to the agents of one sandbox: it starts launches, keeps
 * their output and ends them. All calls may be retried. On the same machine they are function calls; otherwise they go
 * through a `SupervisorClient`.
 */
export interface Supervisor {
  /**
   * Starts the launch unless it was started before, and resolves once it runs.
   * @throws SandboxError `failed` with the reason; `unavailable` if it is unknown whether it runs
   */
  launch(options: NewLaunch): Promise<void>;

  /** As `SandboxDriver.follow`. */
  follow(options: LaunchName & { offset: number }): AsyncGenerator<SpoolEvent, void, undefined>;

  /** Ends all processes of the launch, or prevents its start. */
  kill(options: LaunchName): Promise<void>;

  /** Removes the output of a launch that has ended, but not the record that it was launched. */
  discard(options: LaunchName): Promise<void>;

  /**
   * Runs a script as a launch to its end and removes all files of that launch. The script ends if the process that
   * waits for it ends. First ends a script that an earlier process left running.
   * @throws SandboxError `failed` if it did not end by itself; `aborted`
   */
  run(options: NewLaunch): Promise<ScriptResult>;

  /**
   * Writes files as the agent's user. It never follows a link out of their folders.
   * @param options.files as `packFiles` packs them
   * @param options.home makes missing folders in it private
   * @throws SandboxError `failed` with the reason
   */
  write(options: { files: Buffer; home: string; signal: AbortSignal }): Promise<void>;

  /** Accesses files as the agent's user; see `FileAccess`. @throws SandboxError */
  files(options: FileCall & { roots: FileRoots }): AsyncGenerator<Item, void, undefined>;

  /** Whether the agent finds all of these programs on its PATH. */
  hasPrograms(options: {
    names: readonly string[];
    environment: Readonly<Record<string, string>>;
    signal: AbortSignal;
  }): Promise<boolean>;
}

/** The result of one of our programs that runs with the agent's rights. */
export interface AgentTask {
  task: Pick<Confinement, 'writeFiles' | 'lookUp'>;
  operands: readonly string[];
  environment: Readonly<Record<string, string>>;
  stdin: Buffer;
}

/** The disk of a sandbox whose file system does not limit it. */
export interface MonitoredDisk {
  folders: readonly [string, ...string[]];
  limitBytes: number;
}

/** A supervisor whose launches store their files in a folder that this process can access. */
export class FolderSupervisor implements Supervisor {
  /**
   * @param options.prepare creates the folder of a launch with the permissions that its supervisor's user needs
   * @param options.start starts the program of one launch (`main.ts`) and returns its answer
   * @param options.clearUp is called when a launch has ended; `unsupervised` if its supervisor may have left processes
   * @param options.asAgent runs one of our programs with the agent's rights to its end
   * @param options.openFiles starts the program that serves one access to files (`confine --files`) with the agent's
   *   rights. @returns its standard input and output; closing them ends it
   * @param options.disk the disk that written files count towards, unless its file system limits it
   * @param options.room returns how large a new file may be, if it is not this process that measures the disk
   * @param options.killStopped whether processes in the sandbox can stop a supervisor
   * @param options.unknown records that the state of a launch cannot be determined
   */
  constructor(
    private readonly options: {
      folders: LaunchFolders;
      prepare: (folder: LaunchFolder) => Promise<void>;
      start: (
        folder: LaunchFolder,
        request: LaunchRequest,
        signal: AbortSignal,
      ) => Promise<LaunchAnswer>;
      clearUp: (launchId: string, unsupervised: boolean) => Promise<void>;
      asAgent: (
        task: AgentTask,
        signal: AbortSignal,
      ) => Promise<{ exitCode: number; output: string }>;
      openFiles: () => Promise<FileServer>;
      disk?: () => Promise<MonitoredDisk | undefined>;
      room?: () => Promise<number>;
      killStopped?: boolean;
      unknown?: (launchId: string) => UnknownState;
    },
  ) {}

  async launch({ launchId, request, signal }: NewLaunch): Promise<void> {
    const folder = this.folder(launchId);
    if (folder.readStart() !== null) return;
    await this.options.prepare(folder);
    await this.start(folder, request, signal);
  }

  async *follow({
    launchId,
    offset,
    signal,
  }: LaunchName & { offset: number }): AsyncGenerator<SpoolEvent, void, undefined> {
    const folder = this.folder(launchId);
    const unknown = this.options.unknown?.(launchId);
    const stopped = this.options.killStopped ? killWhenStopped(folder) : undefined;
    try {
      for await (const event of followSpool(folder, offset, signal, unknown)) {
        if (event.kind === 'exit') await this.options.clearUp(launchId, event.reason === 'lost');
        yield event;
      }
    } finally {
      clearInterval(stopped);
    }
  }

  async kill({ launchId }: Pick<LaunchName, 'launchId'>): Promise<void> {
    const folder = this.folder(launchId);
    if (!(await isThere(folder.path))) return;
    await endLaunch(folder);
    await this.options.clearUp(launchId, true);
    const started = folder.readStart();
    // A killed supervisor could not record the exit. If there is a record, it is kept.
    if (started !== null && 'supervisor' in started) {
      folder.recordExit({ reason: 'killed', exitCode: null });
    }
  }

  async discard({ launchId }: LaunchName): Promise<void> {
    await this.folder(launchId).discardOutput();
  }

  async run({ launchId, request, signal }: NewLaunch): Promise<ScriptResult> {
    const folder = this.folder(launchId);
    await endScripts(this.options.folders);
    await this.options.prepare(folder);
    await markScript(folder);
    try {
      await this.start(folder, { ...request, owner: identifyProcess(process.pid) }, signal);
      return await scriptResult(this.follow({ launchId, offset: 0, signal }));
    } catch (error) {
      await this.kill({ launchId });
      throw error;
    } finally {
      await rm(folder.path, { recursive: true, force: true });
    }
  }

  async write({ files, home, signal }: Parameters<Supervisor['write']>[0]): Promise<void> {
    const task = { writeFiles: home };
    const nothing = { operands: [], environment: {} };
    const { asAgent } = this.options;
    const { exitCode, output } = await asAgent({ task, ...nothing, stdin: files }, signal);
    if (exitCode === 0) return;
    throw new SandboxError('failed', `files could not be written: ${output}`);
  }

  async *files(options: Parameters<Supervisor['files']>[0]): ReturnType<Supervisor['files']> {
    const room = options.request.call === 'write' ? await this.room() : 0;
    yield* callFiles(await this.options.openFiles(), { ...options, room });
  }

  async hasPrograms(options: Parameters<Supervisor['hasPrograms']>[0]): Promise<boolean> {
    const { names: operands, environment, signal } = options;
    const task = { lookUp: true };
    const stdin = Buffer.alloc(0);
    const { asAgent } = this.options;
    return (await asAgent({ task, operands, environment, stdin }, signal)).exitCode === 0;
  }

  private async start(
    folder: LaunchFolder,
    request: LaunchRequest,
    signal: AbortSignal,
  ): Promise<void> {
    const end = (): void => void endLaunch(folder).catch(() => undefined);
    signal.addEventListener('abort', end);
    let answer: LaunchAnswer;
    try {
      answer = await this.options.start(folder, request, signal);
    } finally {
      signal.removeEventListener('abort', end);
    }
    if (signal.aborted) {
      await endLaunch(folder);
      throw new SandboxError('aborted', 'the launch was aborted');
    }
    if (answer.ok) return;
    throw new SandboxError('failed', `the sandbox could not be started: ${answer.message}`);
  }

  /** How large a new file may be. */
  private async room(): Promise<number> {
    if (this.options.room !== undefined) return this.options.room();
    const disk = await this.options.disk?.();
    if (disk === undefined) return Number.MAX_SAFE_INTEGER;
    return Math.max(0, disk.limitBytes - (await diskUsage(disk.folders, disk.limitBytes)));
  }

  private folder(launchId: string): LaunchFolder {
    return this.options.folders.launch(requireId(launchId));
  }
}
