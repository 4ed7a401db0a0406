import { createHash } from 'node:crypto';
import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import {
  chmod,
  cp,
  mkdir,
  readFile,
  readdir,
  realpath,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { publishOnce } from '../../../../common/publish-once.js';

export interface EnsureToolsOptions {
  /** Where tool folders are kept. Made if missing. */
  dir: string;
  /** The Node to give to sandboxes. Default: the one that runs this process. */
  nodePath?: string;
  /** The folder of npm's own package. Default: the service's dependency `npm`. */
  npmDir?: string;
  /** Default: never. */
  signal?: AbortSignal;
}

/** Counts up when the folder's layout changes. */
const FORMAT = 1;

/** npm would install global packages beside Node, where no sandbox can write. Its environment variables go before this. */
const NPM_DEFAULTS = 'prefix=${HOME}/.local\nupdate-notifier=false\nfund=false\n';

/**
 * Makes, once, the folder of tools that every sandbox has on its PATH whatever the host has: `bin/node`, `bin/npm` and
 * `bin/npx`. Every file in it can be read by everyone and written by no one, and there are no links out of it, so that it
 * can be mounted anywhere. `npm install -g` installs to `$HOME/.local`, unless NPM_CONFIG_PREFIX says otherwise. A folder is named for what is in it, so another version of the service makes another one.
 * @returns the absolute path of a complete folder, to be mounted read-only
 * @throws Error if Node does not run or npm is not there
 */
export async function ensureTools(options: EnsureToolsOptions): Promise<{ path: string }> {
  const { dir, signal = new AbortController().signal } = options;
  const node = await realpath(options.nodePath ?? process.execPath);
  const npm = await realpath(options.npmDir ?? ownNpm());
  const { size, mtimeMs } = await stat(node);
  const [nodeVersion, npmVersion] = await Promise.all([versionOfNode(node), versionOfNpm(npm)]);
  const identity = JSON.stringify([FORMAT, process.arch, size, mtimeMs]);
  const digest = createHash('sha256').update(identity).digest('hex').slice(0, 12);
  const path = await publishOnce({
    dir,
    name: `node-${nodeVersion}-npm-${npmVersion}-${digest}`,
    signal,
    build: ({ draft }) => build({ draft, node, npm }),
  });
  return { path };
}

async function build({
  draft,
  node,
  npm,
}: {
  draft: string;
  node: string;
  npm: string;
}): Promise<void> {
  const bin = join(draft, 'bin');
  const modules = join(draft, 'lib/node_modules');
  await mkdir(bin);
  await mkdir(modules, { recursive: true });
  // Not a hard link: its mode and owner would be those of the host's file, and some hosts forbid linking to it.
  await cp(node, join(bin, 'node'), { mode: constants.COPYFILE_FICLONE });
  await cp(npm, join(modules, 'npm'), {
    recursive: true,
    dereference: true,
    mode: constants.COPYFILE_FICLONE,
  });
  await symlink('../lib/node_modules/npm/bin/npm-cli.js', join(bin, 'npm'));
  await symlink('../lib/node_modules/npm/bin/npx-cli.js', join(bin, 'npx'));
  await writeFile(join(modules, 'npm/npmrc'), NPM_DEFAULTS);
  await shut(draft);
}

/** Everyone may read, and no one write, not even the owner by accident. */
async function shut(folder: string): Promise<void> {
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await shut(path);
    else if (entry.isFile()) {
      const { mode } = await stat(path);
      await chmod(path, (mode & 0o100) === 0 ? 0o444 : 0o555);
    }
  }
  await chmod(folder, 0o755);
}

function ownNpm(): string {
  return dirname(createRequire(import.meta.url).resolve('npm/package.json'));
}

async function versionOfNode(node: string): Promise<string> {
  const { stdout } = await promisify(execFile)(node, ['-p', 'process.versions.node']);
  return stdout.trim();
}

async function versionOfNpm(npm: string): Promise<string> {
  const { version } = JSON.parse(await readFile(join(npm, 'package.json'), 'utf8')) as {
    version: string;
  };
  return version;
}
