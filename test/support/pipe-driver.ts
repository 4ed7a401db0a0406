import { execFile, spawn } from 'node:child_process';
import { chmod, chown, mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import { promisify } from 'node:util';
import { packageRoot } from '../../src/common/package-root.js';
import { RemoteLaunches } from '../../src/sandboxes/driver/remote-launches.js';
import type {
  CreateSandboxOptions,
  LaunchOptions,
  LaunchRef,
  RunScriptOptions,
  SandboxDriver,
  SandboxFile,
  SandboxRef,
} from '../../src/sandboxes/driver/sandbox-driver.js';
import { confineProgram } from '../../src/supervisor/confine.js';
import { killSupervisors } from '../../src/supervisor/launch-end.js';
import { LaunchFolders } from '../../src/supervisor/launch-folder.js';
import type { LaunchRequest } from '../../src/supervisor/launch-request.js';
import type { FileCall } from '../../src/supervisor/files/file-call.js';
import { packFiles } from '../../src/supervisor/packed-files.js';
import { requireId, requireNotAborted, SandboxError } from '../../src/supervisor/sandbox-error.js';
import { type SandboxLimits, SYSTEM_PATH } from '../../src/supervisor/sandbox-options.js';
import { scriptCommand } from '../../src/supervisor/scripts.js';
import { seccompFilter } from '../../src/supervisor/seccomp/profiles.js';
import type { ServedPlace } from '../../src/supervisor/served-place.js';

const run = promisify(execFile);
const PARTS = ['home', 'workspace', 'tmp'];

/**
 * How small a driver can be: a sandbox is a folder, and its supervisor a process behind a pipe. It isolates nothing and
 * is for tests only.
 */
export class PipeDriver implements SandboxDriver {
  readonly name = 'pipe';
  private readonly remote = new RemoteLaunches({
    connect: async (sandboxId) => this.connect(sandboxId),
    stop: (sandboxId) => killSupervisors(this.launches(sandboxId)),
  });

  constructor(
    private readonly options: { folder: string; agentUser: number; limits: SandboxLimits },
  ) {}

  layout(sandboxId: string) {
    const folder = join(this.options.folder, requireId(sandboxId));
    return { home: join(folder, 'home'), workspace: join(folder, 'workspace') };
  }

  async preflight(): Promise<void> {
    // A folder and a program are always there.
  }

  async limits() {
    const [watched, none] = ['monitored', 'unlimited'] as const;
    return { memory: watched, processes: watched, cpu: none, disk: watched };
  }

  async create({ sandboxId, signal }: CreateSandboxOptions): Promise<void> {
    requireNotAborted(signal);
    const { folder, agentUser } = this.options;
    await mkdir(join(folder, requireId(sandboxId), 'launches'), { recursive: true });
    for (const part of PARTS) {
      const path = join(folder, sandboxId, part);
      await mkdir(path, { recursive: true });
      await chmod(path, part === 'tmp' ? 0o1777 : 0o700);
      await chown(path, agentUser, agentUser);
    }
  }

  async packageHosts(): Promise<readonly string[]> {
    return [];
  }

  async restrictNetwork({ sandboxId }: SandboxRef): Promise<void> {
    await this.require(sandboxId);
  }

  async writeFiles(options: SandboxRef & { files: readonly SandboxFile[] }): Promise<void> {
    const { sandboxId, signal } = options;
    const { home, workspace } = this.layout(sandboxId);
    const files = packFiles(options.files, [home, workspace]);
    await this.remote.supervisor(sandboxId).write({ files, home, signal });
  }

  files(options: SandboxRef & FileCall) {
    const { sandboxId } = options;
    const supervisor = this.remote.supervisor(requireId(sandboxId));
    return supervisor.files({ ...options, roots: this.layout(sandboxId) });
  }

  async runScript({ sandboxId, script, env = {}, signal }: RunScriptOptions) {
    const request = this.request(sandboxId, { ...scriptCommand(script), env });
    const launchId = crypto.randomUUID();
    try {
      return await this.remote.supervisor(sandboxId).run({ launchId, request, signal });
    } catch (error) {
      if (signal.aborted) await this.remote.kill({ sandboxId, launchId });
      throw error;
    }
  }

  async providePrograms(): Promise<void> {
    throw new SandboxError('unsupported', 'there are no programs');
  }

  async gateway() {
    return { url: 'http://127.0.0.1', identifies: false };
  }

  async launch(options: LaunchOptions): Promise<void> {
    const { sandboxId, launchId, signal } = options;
    requireNotAborted(signal);
    const request = this.request(sandboxId, options);
    await this.remote.supervisor(sandboxId).launch({ launchId, request, signal });
  }

  follow(options: LaunchRef & { offset: number }) {
    return this.remote.supervisor(options.sandboxId).follow(options);
  }

  kill(options: LaunchRef): Promise<void> {
    return this.remote.kill(options);
  }

  discardSpool(options: LaunchRef): Promise<void> {
    return this.remote.supervisor(options.sandboxId).discard(options);
  }

  async exists({ sandboxId, signal }: SandboxRef) {
    requireNotAborted(signal);
    return (await this.list()).includes(requireId(sandboxId)) ? 'yes' : 'no';
  }

  async destroy({ sandboxId }: SandboxRef): Promise<void> {
    await this.remote.forget(requireId(sandboxId));
    await killSupervisors(this.launches(sandboxId));
    // Node's own cannot remove paths that are longer than the kernel takes at once.
    await run('rm', ['-rf', '--', join(this.options.folder, sandboxId)]);
  }

  list(): Promise<string[]> {
    return readdir(this.options.folder);
  }

  async close(): Promise<void> {
    await this.remote.close();
  }

  private launches(sandboxId: string): LaunchFolders {
    return new LaunchFolders(join(this.options.folder, requireId(sandboxId), 'launches'));
  }

  private async require(sandboxId: string): Promise<void> {
    if (!(await this.list()).includes(requireId(sandboxId))) {
      throw new SandboxError('gone', 'the sandbox does not exist any more');
    }
  }

  private async connect(sandboxId: string): Promise<Duplex> {
    await this.require(sandboxId);
    const app = packageRoot();
    const supervisor = join(app, 'dist/src/supervisor');
    const place: ServedPlace = {
      launches: this.launches(sandboxId).path,
      agentUser: this.options.agentUser,
      disk: {
        folders: [this.layout(sandboxId).home, this.layout(sandboxId).workspace],
        limitBytes: this.options.limits.diskBytes,
      },
      confine: confineProgram(app),
      main: [process.execPath, join(supervisor, 'main.js')],
    };
    const child = spawn(process.execPath, [join(supervisor, 'serve.js'), JSON.stringify(place)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const connection = Duplex.from({ readable: child.stdout, writable: child.stdin });
    return connection.once('close', () => child.kill());
  }

  private request(
    sandboxId: string,
    options: Pick<LaunchOptions, 'command' | 'env' | 'stdin' | 'cwd' | 'deadline' | 'outputLimit'>,
  ): LaunchRequest {
    const { command, env, stdin, cwd, deadline, outputLimit } = options;
    const { agentUser, limits, folder } = this.options;
    const { home, workspace } = this.layout(sandboxId);
    const tmp = join(folder, sandboxId, 'tmp');
    const own = { HOME: home, USER: 'agent', LANG: 'C.UTF-8', TERM: 'dumb', TMPDIR: tmp };
    return {
      ...{ command, stdin, deadline, outputLimit, limits },
      environment: { PATH: SYSTEM_PATH, ...own, ...env },
      cwd: cwd ?? workspace,
      owner: null,
      scratchFolders: [],
      seccomp: seccompFilter('agent', process.arch).toString('base64'),
      cgroups: null,
      disk: { kind: 'folders', folders: [home, workspace, tmp] },
      stage: {
        ...{ kind: 'plain', keepCapabilities: false, limitProcesses: true },
        ...{ confine: confineProgram(packageRoot()), uid: agentUser },
      },
    };
  }
}
