import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import {
  chmod,
  chown,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import type { NpmProgram, NetworkPolicy } from '../sandbox-driver.js';
import { SandboxError, isId, asUnavailable } from '../../../supervisor/sandbox-error.js';
import { IDENTITY_FILES } from './base-files.js';
import { imageReleased, mountedEntry } from './disk-images.js';
import { type Stack, stackedEntry } from './layers/stacked-entry.js';
import type { RootEntry } from './host.js';
import { ifMissing, isMissing } from '../../../common/missing-file.js';
import { type LaunchFolder, LaunchFolders } from '../../../supervisor/launch-folder.js';
import type { Launcher } from './launcher/launcher.js';

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
  /** Its files are in an image that is mounted for each entry; else they are in a folder. */
  disk?: 'image';
  /** What stands beside /usr in its own system. Missing: what is found there. */
  entries?: readonly RootEntry[];
  /** Its home and system are overlays of shared layers. */
  stack?: Stack;
  /** Programs that it is given beside what it has itself. */
  programs?: readonly NpmProgram[];
}

const TRASH = '.removed-';

/** Copies a template, whole or not at all, and gives it the agent's account. Says what the copy's file system holds. */
const COPY = `
template=$1 rootfs=$2 owner=$3 passwd=$4 group=$5 hosts=$6
if [ ! -e "$rootfs" ]; then
  draft=$rootfs.$$
  cp -a --reflink=auto -- "$template" "$draft" &&
  printf '%s\\n' "$passwd" >>"$draft/etc/passwd" && printf '%s\\n' "$group" >>"$draft/etc/group" &&
  printf %s "$hosts" >"$draft/etc/hosts" &&
  { [ -z "$owner" ] || chown -R -h "$owner:$owner" -- "$draft"; } &&
  mv -T -- "$draft" "$rootfs" || { rm -rf -- "$draft"; [ -e "$rootfs" ] || exit 1; }
fi
echo
stat -f -c '%S %b %f' -- "$rootfs"`;

/** One sandbox's folder. What the agent can write is below `files`; the rest is the service's and the supervisor's. */
export class SandboxFolder {
  /** @param flat made before there was `files`: home and workspace are in the folder itself */
  constructor(
    readonly path: string,
    private readonly flat = false,
  ) {}

  /** Where its image is mounted, if it has one. */
  get files(): string {
    return this.flat ? this.path : join(this.path, 'files');
  }
  get home(): string {
    return join(this.files, 'home');
  }
  get workspace(): string {
    return join(this.files, 'workspace');
  }
  get tmp(): string {
    return join(this.files, 'tmp');
  }
  get rootfs(): string {
    return join(this.files, 'rootfs');
  }
  /** Where the image is mounted, or the own files are, of a sandbox on layers. */
  get disk(): string {
    return join(this.path, 'disk');
  }
  /** Its system: a copy, or an overlay of layers. */
  systemOf({ stack }: Pick<SandboxRecord, 'stack'>): string {
    return stack === undefined ? this.rootfs : join(this.path, 'system');
  }
  get image(): string {
    return join(this.path, 'disk.img');
  }
  get launches(): LaunchFolders {
    return new LaunchFolders(join(this.path, 'launches'));
  }

  launch(launchId: string): LaunchFolder {
    return this.launches.launch(launchId);
  }

  /** The same folder as somebody sees it who has it elsewhere. */
  seenAt(path: string): SandboxFolder {
    return new SandboxFolder(path, this.flat);
  }

  /** What is put before a command of the service so that it finds the files. */
  entry(record: Pick<SandboxRecord, 'disk' | 'stack' | 'uid'>): string[] {
    const { stack, uid, disk } = record;
    const target = stack === undefined ? this.files : this.disk;
    return [
      ...(disk === 'image' ? mountedEntry({ image: this.image, target }) : []),
      ...(stack === undefined ? [] : stackedEntry(this, stack, uid)),
    ];
  }
}

/** Makes the folders in which a sandbox on layers keeps its own files, and those where they are mounted. */
async function makeDisk(folder: SandboxFolder, owner: number | null): Promise<void> {
  const system = join(folder.disk, 'system');
  for (const [path, mode] of [
    [join(folder.path, 'system'), 0o755],
    [folder.disk, 0o711],
    [join(folder.disk, 'work'), 0o700],
    [system, 0o755],
    [join(folder.disk, 'files'), 0o711],
  ] as const) {
    await mkdir(path, { recursive: true });
    await chmod(path, mode);
  }
  if (owner !== null) await chown(system, owner, owner);
  for (const name of ['home', 'workspace', 'tmp']) {
    await mkdir(join(folder.files, name), { recursive: true });
  }
}

/** The sandboxes on disk: one folder each, named by the sandbox's id. */
export class SandboxStore {
  private prepared = false;

  constructor(
    readonly stateDir: string,
    private readonly launcher: Launcher,
  ) {}

  folder(sandboxId: string): SandboxFolder {
    const path = join(this.stateDir, sandboxId);
    return new SandboxFolder(path, existsSync(join(path, 'home')));
  }

  async prepare(): Promise<void> {
    await mkdir(this.stateDir, { recursive: true });
    // The users of sandboxes pass it, and see nothing of it.
    await chmod(this.stateDir, 0o711);
    this.prepared = true;
  }

  /**
   * The record of a sandbox; `null` where there is none, or one that makes no sense.
   * @throws SandboxError `unavailable` where that cannot be told
   */
  async read(sandboxId: string): Promise<SandboxRecord | null> {
    let text: string;
    try {
      text = await readFile(join(this.folder(sandboxId).path, 'sandbox.json'), 'utf8');
    } catch (error) {
      if (!isMissing(error)) throw asUnavailable(error);
      await this.requireFolder();
      return null;
    }
    let record: SandboxRecord;
    try {
      record = JSON.parse(text) as SandboxRecord;
    } catch {
      return null;
    }
    if (record.version === 1) return record;
    throw new SandboxError('unavailable', 'the sandbox was made by another version of the service');
  }

  /** The record of a sandbox that is there. @throws SandboxError `gone`, or `unavailable` as {@link read} does */
  async require(sandboxId: string): Promise<SandboxRecord> {
    const record = await this.read(sandboxId);
    if (record === null) throw new SandboxError('gone', 'the sandbox does not exist any more');
    // One that was made before sandboxes had a /tmp of their own gets it now.
    if (record.disk !== 'image' && !record.stack && !existsSync(this.folder(sandboxId).tmp)) {
      await this.makeFolders(sandboxId, record.uid, record.uid);
    }
    return record;
  }

  async write(sandboxId: string, record: SandboxRecord): Promise<void> {
    const { path } = this.folder(sandboxId);
    const draft = join(path, `.sandbox-${randomBytes(6).toString('hex')}`);
    await writeFile(draft, JSON.stringify(record), { mode: 0o600, flush: true });
    await rename(draft, join(path, 'sandbox.json'));
  }

  /**
   * Makes the folders of a sandbox, or completes them.
   * @param owner of home, workspace and tmp; `null`: the service's user
   * @param spoolOwner of the launches' folder, which the supervisor writes
   * @param onLayers will it be on layers? Then its own files are elsewhere.
   */
  async makeFolders(
    sandboxId: string,
    owner: number | null,
    spoolOwner: number | null,
    onLayers = false,
  ): Promise<void> {
    const folder = this.folder(sandboxId);
    await mkdir(folder.path, { recursive: true });
    // The sandbox's user passes, by its group, but owns nothing here; nobody else does, whatever the agent opens below.
    if (owner !== null) await chown(folder.path, process.geteuid?.() ?? 0, owner);
    // By hand: the umask has its say in mkdir.
    await chmod(folder.path, owner === null ? 0o700 : 0o710);
    if (folder.files !== folder.path) {
      await mkdir(folder.files, { recursive: true });
      await chmod(folder.files, 0o711);
    }
    if (onLayers) await makeDisk(folder, owner);
    const own = onLayers ? new SandboxFolder(folder.disk) : folder;
    for (const [path, mode, user] of [
      [own.home, 0o700, owner],
      [own.workspace, 0o700, owner],
      [own.tmp, 0o1777, owner],
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

  /**
   * A copy of a template as the sandbox's own system; shares the data where the file system can.
   * @returns bytes in use on the file system that it is on
   */
  async copyRootfs(
    sandboxId: string,
    template: string,
    { uid, disk }: Pick<SandboxRecord, 'uid' | 'disk'>,
  ): Promise<number> {
    const folder = this.folder(sandboxId);
    const line = (name: string): string =>
      IDENTITY_FILES[name]?.split('\n').find((each) => each.startsWith('agent:')) ?? '';
    const { exitCode, output } = await this.launcher.run({
      argv: folder
        .entry({ uid, ...(disk && { disk }) })
        .concat(
          ['/bin/sh', '-c', COPY, 'sh', template, folder.rootfs, String(uid ?? '')],
          [line('passwd'), line('group'), IDENTITY_FILES['hosts'] ?? ''],
        ),
    });
    if (exitCode !== 0) {
      const cause = output.split('\n').at(-1) ?? '';
      throw new SandboxError(
        'failed',
        `the system for installing software could not be copied: ${cause}`,
      );
    }
    const [size = 0, blocks = 0, free = 0] = (output.split('\n').at(-1) ?? '')
      .split(' ')
      .map(Number);
    return (blocks - free) * size;
  }

  /** Ids of all sandboxes that have anything on disk, whole or not. @throws SandboxError `unavailable`, the system's error */
  async list(): Promise<string[]> {
    await this.requireFolder();
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
      const names = await readdir(this.stateDir).catch(ifMissing<string[]>([]));
      const trash = names.filter((name) => name.startsWith(TRASH + sandboxId));
      if (trash.length === 0) return imageReleased(sandboxId);
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

  /**
   * A folder of all sandboxes that was there and is not any more was unmounted, or is about to be moved: nothing follows
   * for the sandboxes in it.
   */
  private async requireFolder(): Promise<void> {
    if (!this.prepared) return;
    await stat(this.stateDir).catch((error: unknown) => {
      throw new SandboxError('unavailable', 'the folder of the sandboxes cannot be reached', {
        cause: error,
      });
    });
  }

  /** Runs a tool of the host to its end; `false` if it failed. */
  private async tool(program: string, args: readonly string[]): Promise<boolean> {
    return (await this.launcher.run({ argv: [program, ...args] })).exitCode === 0;
  }
}
