import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { packageRoot } from '../../../src/common/package-root.js';
import { ARCHIVE_FORMATS, archiveOf } from '../../../src/files/archive.js';
import {
  captureScript,
  listScript,
  patchScript,
} from '../../../src/files/changes/changes-script.js';
import { confine, confineProgram } from '../../../src/supervisor/confine.js';
import { FileAccess, type FileEntry } from '../../../src/supervisor/files/file-access.js';
import { callFiles } from '../../../src/supervisor/files/file-call.js';
import { SandboxError } from '../../../src/supervisor/sandbox-error.js';
import { type HostileRepository, REPOSITORIES } from './hostile-files/repositories.js';
import { someAtOnce } from '../../support/some-at-once.js';
import { type HostileTree, TREES } from './hostile-files/trees.js';

/** An access that takes longer hangs. */
const LIMIT_MS = 100_000;
/** Of endless content, this much is read. */
const ENOUGH_BYTES = 20_000_000;
const ENOUGH_OF_ARCHIVE = 200_000;
const SECRET = 'the-secret-that-lies-outside';
const HOOKS = [
  'applypatch-msg fsmonitor-watchman post-checkout post-commit post-index-change post-merge',
  'pre-auto-gc pre-commit prepare-commit-msg push-to-checkout reference-transaction update',
].join(' ');

let root: string;
let outside: string;
let workspace: string;
let before: string;
/** The commit that every repository begins with. */
let base: string;

/** Runs a script, for the case with this name. @returns its output */
async function script(name: string, cwd: string, text: string): Promise<string> {
  const args = ['-c', `umask 022; ${text}`];
  const options = { cwd, env: environment(name), encoding: 'utf8' } as const;
  return (await promisify(execFile)('bash', args, options)).stdout;
}
const trapOf = (name: string): string => join(root, 'traps', name);
const environment = (name: string) => ({
  PATH: process.env['PATH'],
  HOME: '/nowhere',
  OUTSIDE: outside,
  TRAP: trapOf(name),
  HOOKS,
  GIT_CONFIG_NOSYSTEM: '1',
});
/** A program that leaves a trace if it runs. */
async function setTrap(name: string): Promise<string> {
  const trace = `${trapOf(name)}.ran`;
  await writeFile(trapOf(name), `#!/bin/sh\ntouch ${trace}\n`, { mode: 0o755 });
  return trace;
}
/** The names, content and times of what is outside. */
async function outsideNow(): Promise<string> {
  const names = (await readdir(outside, { recursive: true })).sort();
  const lines = ['.', ...names].map(async (name) => {
    const path = join(outside, name);
    const { mode, size, mtimeNs } = await lstat(path, { bigint: true });
    const isFile = (Number(mode) & 0o170_000) === 0o100_000;
    const content = isFile
      ? createHash('sha256')
          .update(await readFile(path))
          .digest('hex')
      : '';
    return `${name} ${mode} ${size} ${mtimeNs} ${content}`;
  });
  return (await Promise.all(lines)).join('\n');
}

beforeAll(async () => {
  root = await mkdtemp(join(process.env['TEST_MEMORY'] ?? tmpdir(), 'hostile-'));
  outside = join(root, 'outside');
  workspace = join(root, 'workspace');
  await mkdir(join(root, 'tmp'));
  await mkdir(workspace);
  await mkdir(outside);
  await mkdir(join(root, 'traps'));
  await writeFile(join(outside, 'secret'), SECRET);
  const commit = 'git add . && git -c user.name=a -c user.email=a@b commit -qm';
  await script(
    '',
    outside,
    `git init -q repository; cd repository; cp ../secret .; ${commit} secret`,
  );
  await mkdir(join(root, 'base'));
  const begin = `git init -q -b main; mkdir d; echo one >a; echo two >d/b; ${commit} base`;
  base = (await script('', join(root, 'base'), `${begin}; git rev-parse HEAD`)).trim();
  before = await outsideNow();
});
afterAll(async () => {
  await Promise.all([trees.ended(), repositories.ended()]);
  await rm(root, { recursive: true, force: true });
});

/** Access to the files of the workspace with all rights of the test, so that only its own checks protect what is outside. */
const files = new FileAccess((call) => {
  const [program = '', ...args] = confine(confineProgram(packageRoot()), { files: true });
  const env = { TMPDIR: join(root, 'tmp') };
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'], env });
  const roots = { home: workspace, workspace };
  return callFiles(child, { ...call, roots, room: ENOUGH_BYTES });
});

/** Everything that an access gives, as text; the error of the sandbox if it is refused. Fails if it hangs. */
async function outcome(access: (signal: AbortSignal) => Promise<Buffer>): Promise<string> {
  const signal = AbortSignal.timeout(LIMIT_MS);
  try {
    return (await access(signal)).toString('latin1');
  } catch (error) {
    if (!(error instanceof SandboxError)) throw error;
    const isHanging = error.kind === 'aborted' || error.message === 'it took too long';
    if (isHanging) throw new Error(`an access hangs: ${error.message}`, { cause: error });
    return `${error.kind}: ${error.message}`;
  }
}

async function read(content: AsyncIterable<Uint8Array>, enough = ENOUGH_BYTES): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of content) {
    parts.push(Buffer.from(part));
    bytes += part.length;
    if (bytes > enough) break;
  }
  return Buffer.concat(parts);
}

async function list(path: string, limit: number, signal: AbortSignal): Promise<FileEntry[]> {
  const entries: FileEntry[] = [];
  for await (const entry of files.entries({ path, after: '', limit, signal })) entries.push(entry);
  return entries;
}

const accesses = {
  list: async (path: string, signal: AbortSignal) =>
    Buffer.from(JSON.stringify(await list(path, 1000, signal))),
  read: async (path: string, signal: AbortSignal) => {
    const file = await files.open({ path, signal });
    try {
      return file.entry.type === 'file'
        ? await read(file.read(0, Math.min(file.entry.size, ENOUGH_BYTES)))
        : Buffer.alloc(0);
    } finally {
      await file.close();
    }
  },
  write: async (path: string, signal: AbortSignal) => {
    const content = async function* () {
      yield Buffer.from('written');
    };
    return Buffer.from(
      JSON.stringify(await files.write({ path, mode: null, content: content(), signal })),
    );
  },
  remove: async (path: string, signal: AbortSignal) => {
    await files.remove({ path, signal });
    return Buffer.alloc(0);
  },
};

async function expectNothingLost(said: string): Promise<void> {
  expect(said).not.toContain(SECRET);
  expect(await outsideNow()).toBe(before);
}

async function end(helper: ChildProcess): Promise<void> {
  // Some have ended by themselves.
  if (helper.pid === undefined || helper.exitCode !== null || helper.signalCode !== null) return;
  const ended = once(helper, 'exit');
  process.kill(-helper.pid, 'SIGKILL');
  await ended;
}

const trees = someAtOnce(TREES, 1, async (tree, index) => {
  const folder = join(workspace, `tree-${index}`);
  await mkdir(folder);
  await script(`tree-${index}`, folder, tree.script);
  const options = {
    cwd: folder,
    env: environment(`tree-${index}`),
    stdio: 'ignore',
    detached: true,
  } as const;
  const helper = tree.meanwhile && spawn('bash', ['-c', tree.meanwhile], options);
  try {
    await accessTree(tree, folder);
  } finally {
    if (helper) await end(helper);
  }
});

async function accessTree(tree: HostileTree, folder: string): Promise<void> {
  const given = (tree.paths ?? []).map((path) => path.replace('$OUTSIDE', outside));
  const listed = await list(folder, 40, AbortSignal.timeout(LIMIT_MS));
  const names = [...new Set([...listed.map(({ name }) => name), ...given])];
  const paths = names.map((name) => `${folder}/${name}`);
  let said = '';
  for (let round = 0; round < (tree.rounds ?? 1); round += 1) {
    for (const path of [folder, ...paths]) {
      said += await outcome((signal) => accesses.list(path, signal));
      said += await outcome((signal) => accesses.read(path, signal));
    }
    for (const format of ARCHIVE_FORMATS) {
      said += await outcome((signal) =>
        read(archiveOf(files.tree({ path: folder, signal }), format), ENOUGH_OF_ARCHIVE),
      );
    }
    said += await outcome(async (signal) => read(contentOf(files.tree({ path: folder, signal }))));
  }
  await expectNothingLost(said);
  for (let round = 0; round < (tree.rounds ?? 1); round += 1) {
    for (const path of given.map((name) => `${folder}/${name}`)) {
      await outcome((signal) => accesses.write(path, signal));
      await outcome((signal) => accesses.remove(path, signal));
    }
    for (const path of paths) await outcome((signal) => accesses.write(`${path}/new`, signal));
  }
  for (const path of paths) await outcome((signal) => accesses.write(path, signal));
  for (const path of paths) await outcome((signal) => accesses.remove(path, signal));
  await outcome((signal) => accesses.remove(folder, signal));
  await expectNothingLost(said);
}

describe('a hostile tree', () => {
  it.each(TREES.map(({ name }, index) => [name, index] as const))(
    'of %s is read, archived, written and removed without leaving it',
    (_name, index) => trees.result(index),
    120_000,
  );
});

const repositories = someAtOnce(REPOSITORIES, 2, async (repository: HostileRepository, index) => {
  const name = `repository-${index}`;
  const path = join(workspace, name);
  const trace = await setTrap(name);
  await mkdir(path);
  await script(
    name,
    path,
    `cp -a ${join(root, 'base')}/. .; echo changed >>d/b; { ${repository.script}\n} || true; rm -f ${trace}`,
  );
  const commands = [listScript(base), patchScript(base), captureScript(base, ENOUGH_BYTES)];
  let said = '';
  for (const command of commands) {
    said += await outcome(async (signal) =>
      read(files.script({ path, script: command, limitMs: LIMIT_MS, signal })),
    );
  }
  expect(existsSync(trace)).toBe(false);
  await expectNothingLost(said);
  await rm(path, { recursive: true, force: true });
});

describe('a hostile repository', () => {
  it.each(REPOSITORIES.map(({ name }, index) => [name, index] as const))(
    'with %s is compared without running anything',
    (_name, index) => repositories.result(index),
    120_000,
  );
});

/** The bytes of a tree's files. */
async function* contentOf(tree: AsyncIterable<unknown>): AsyncGenerator<Buffer, void, undefined> {
  for await (const part of tree) if (Buffer.isBuffer(part)) yield part;
}
