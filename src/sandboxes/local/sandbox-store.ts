import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import {
  appendFile,
  chmod,
  chown,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import type { NpmProgram } from '../npm-program.js';
import type { NetworkPolicy } from '../sandbox-driver.js';
import { SandboxError } from '../sandbox-error.js';
import { IDENTITY_FILES } from './base-files.js';
import { isId } from '../shared/ids.js';
import { ifMissing } from '../shared/if-missing.js';
import { type LaunchFolder, LaunchFolders } from '../shared/launch/launch-folder.js';
import type { Spawner } from './spawner/spawner.js';

/** What the driver remembers of a sandbox. Written last, so its presence means that the sandbox is whole. */
export interface SandboxRecord {
  version: 1;
  /** The kernel user, or `null` where all sandboxes run as the service's own. */
  uid: number | null;
  /** Does it have a system of its own that `setup` may change? */
  writableRoot: boolean;
  /** Bytes on disk that it came with, which do not count against its limit. */
  baseBytes: number;
  network: NetworkPolicy;
  /** Programs that it is given beside what it has itself. */
  programs?: readonly NpmProgram[];
}

const TRASH = '.removed-';

/** The agent's user and group, in a system that nobody has run anything in yet. */
async function addAgent(rootfs: string): Promise<boolean> {
  const names = ['passwd', 'group'] as const;
  for (const name of names) {
    const line = (IDENTITY_FILES[name] ?? '').split('\n').find((each) => each.startsWith('agent:'));
    await appendFile(join(rootfs, 'etc', name), `${line}\n`);
  }
  await writeFile(join(rootfs, 'etc/hosts'), IDENTITY_FILES['hosts'] ?? '');
  return true;
}

/** One sandbox's folder. */
export class SandboxFolder {
  constructor(readonly path: string) {}

  get home(): string {
    return join(this.path, 'home');
  }
  get workspace(): string {
    return join(this.path, 'workspace');
  }
  get rootfs(): string {
    return join(this.path, 'rootfs');
  }
  get launches(): LaunchFolders {
    return new LaunchFolders(join(this.path, 'launches'));
  }

  launch(launchId: string): LaunchFolder {
    return this.launches.launch(launchId);
  }
}

/** The sandboxes on disk: one folder each, named by the sandbox's id. */
export class SandboxStore {
  constructor(
    readonly stateDir: string,
    private readonly spawner: Spawner,
  ) {}

  folder(sandboxId: string): SandboxFolder {
    return new SandboxFolder(join(this.stateDir, sandboxId));
  }

  async prepare(): Promise<void> {
    await mkdir(this.stateDir, { recursive: true });
    // The users of sandboxes pass it, and see nothing of it.
    await chmod(this.stateDir, 0o711);
  }

  async read(sandboxId: string): Promise<SandboxRecord | null> {
    try {
      const text = await readFile(join(this.folder(sandboxId).path, 'sandbox.json'), 'utf8');
      const record = JSON.parse(text) as SandboxRecord;
      return record.version === 1 ? record : null;
    } catch {
      return null;
    }
  }

  /** The record of a sandbox that is there. @throws SandboxError `gone` */
  async require(sandboxId: string): Promise<SandboxRecord> {
    const record = await this.read(sandboxId);
    if (record === null) throw new SandboxError('gone', 'the sandbox does not exist any more');
    return record;
  }

  async write(sandboxId: string, record: SandboxRecord): Promise<void> {
    const { path } = this.folder(sandboxId);
    const draft = join(path, `.sandbox-${randomBytes(6).toString('hex')}`);
    await writeFile(draft, JSON.stringify(record), { mode: 0o600 });
    await rename(draft, join(path, 'sandbox.json'));
  }

  /**
   * Makes the folders of a sandbox, or completes them.
   * @param owner of home and workspace; `null`: the service's user
   * @param spoolOwner of the launches' folder, which the supervisor writes
   */
  async makeFolders(
    sandboxId: string,
    owner: number | null,
    spoolOwner: number | null,
  ): Promise<void> {
    const folder = this.folder(sandboxId);
    await mkdir(folder.path, { recursive: true });
    // The sandbox's user passes, by its group, but owns nothing here; nobody else does, whatever the agent opens below.
    if (owner !== null) await chown(folder.path, process.geteuid?.() ?? 0, owner);
    // By hand: the umask has its say in mkdir.
    await chmod(folder.path, owner === null ? 0o700 : 0o710);
    for (const [path, mode, user] of [
      [folder.home, 0o700, owner],
      [folder.workspace, 0o700, owner],
      [folder.launches.path, 0o700, spoolOwner],
    ] as const) {
      // An existing one may by now belong to an agent: leave it as it is.
      if (existsSync(path)) continue;
      const draft = `${path}.${randomBytes(6).toString('hex')}`;
      await mkdir(draft);
      await chmod(draft, mode);
      if (user !== null) await chown(draft, user, user);
      // Another process may have made it meanwhile, and put something into it.
      await rename(draft, path).catch(async (error: NodeJS.ErrnoException) => {
        await rm(draft, { recursive: true, force: true });
        if (!['ENOTEMPTY', 'EEXIST'].includes(error.code ?? '')) throw error;
      });
    }
  }

  /** A copy of a template as the sandbox's own system; shares the data where the file system can. */
  async copyRootfs(sandboxId: string, template: string, owner: number | null): Promise<void> {
    const { rootfs } = this.folder(sandboxId);
    if (existsSync(rootfs)) return;
    const draft = `${rootfs}.${randomBytes(6).toString('hex')}`;
    const copied =
      (await this.tool('cp', ['-a', '--reflink=auto', '--', template, draft])) &&
      (await addAgent(draft)) &&
      (owner === null ||
        (await this.tool('chown', ['-R', '-h', `${owner}:${owner}`, '--', draft])));
    if (!copied) {
      await this.tool('rm', ['-rf', '--', draft]);
      throw new SandboxError('failed', 'the system for installing software could not be copied');
    }
    await rename(draft, rootfs).catch(async (error: NodeJS.ErrnoException) => {
      await this.tool('rm', ['-rf', '--', draft]);
      if (!['ENOTEMPTY', 'EEXIST'].includes(error.code ?? '')) throw error;
    });
  }

  /** Ids of all sandboxes that have anything on disk, whole or not. */
  async list(): Promise<string[]> {
    const names = await readdir(this.stateDir).catch(ifMissing<string[]>([]));
    const ids = names.map((name) =>
      name.startsWith(TRASH) ? name.slice(TRASH.length, TRASH.length + 36) : name,
    );
    return [...new Set(ids.filter(isId))];
  }

  /** Makes a sandbox disappear for everybody, before its files go. */
  async withdraw(sandboxId: string): Promise<void> {
    const { path } = this.folder(sandboxId);
    const trash = join(this.stateDir, `${TRASH}${sandboxId}-${randomBytes(6).toString('hex')}`);
    await rename(path, trash).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
  }

  /** Removes what {@link withdraw} has put aside, whatever the agent did to it. */
  async erase(sandboxId: string): Promise<void> {
    for (let attempt = 0; ; attempt += 1) {
      const names = await readdir(this.stateDir).catch(() => []);
      const trash = names.filter((name) => name.startsWith(TRASH + sandboxId));
      if (trash.length === 0) return;
      if (attempt === 5) {
        throw new SandboxError(
          'failed',
          `the files of the sandbox could not be removed: ${trash.join(', ')}`,
        );
      }
      for (const name of trash) {
        const path = join(this.stateDir, name);
        // The tools of the host, not Node's rm: they cope with paths longer than the kernel takes at once.
        if (await this.tool('rm', ['-rf', '--', path])) continue;
        await this.tool('chmod', ['-R', 'u+rwx', '--', path]);
        await this.tool('rm', ['-rf', '--', path]);
      }
    }
  }

  /** Runs a tool of the host to its end; `false` if it failed. */
  private async tool(program: string, args: readonly string[]): Promise<boolean> {
    return (await this.spawner.run({ argv: [program, ...args] })).exitCode === 0;
  }
}
