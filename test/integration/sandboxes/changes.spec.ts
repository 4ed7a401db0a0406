import { execFile, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import {
  captureScript,
  listScript,
  MAX_PATCH_BYTES,
  patchScript,
} from '../../../src/files/changes/changes-script.js';
import { parseChanges } from '../../../src/files/changes/parse-changes.js';
import { Random } from '../../faults/random.js';
import { filesBelow } from '../../support/files-without-sandbox.js';
import { someAtOnce } from '../../support/some-at-once.js';

/** `npm run histories` tries 200. */
const HISTORIES = Number(process.env['HISTORIES'] ?? 40);
const { signal } = new AbortController();

const execute = promisify(execFile);

let root: string;
beforeAll(async () => {
  root = await mkdtemp(join(process.env['TEST_MEMORY'] ?? tmpdir(), 'changes-'));
});
afterAll(async () => {
  await tried.ended();
  await rm(root, { recursive: true, force: true });
});

async function run(path: string, script: string): Promise<{ line: string; rest: Buffer }> {
  const parts: Buffer[] = [];
  for await (const part of filesBelow(root).script({ path, script, limitMs: 20_000, signal })) {
    parts.push(Buffer.from(part));
  }
  const output = Buffer.concat(parts);
  const end = output.indexOf('\n');
  return { line: output.toString('utf8', 0, end), rest: output.subarray(end + 1) };
}

const ENV = {
  PATH: process.env['PATH'],
  HOME: '/nowhere',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_AUTHOR_NAME: 'a',
  GIT_AUTHOR_EMAIL: 'a@example.com',
  GIT_COMMITTER_NAME: 'a',
  GIT_COMMITTER_EMAIL: 'a@example.com',
};
const git = async (cwd: string, ...args: string[]): Promise<string> =>
  (await execute('git', ['-c', 'protocol.file.allow=always', ...args], { cwd, env: ENV })).stdout;

/** The files of a working tree with their modes, without what git does not store. */
async function treeOf(cwd: string, folder = ''): Promise<string[]> {
  const lines: string[] = [];
  for (const entry of await readdir(join(cwd, folder), { withFileTypes: true })) {
    const name = join(folder, entry.name);
    const path = join(cwd, name);
    if (entry.name === '.git') continue;
    if (entry.isDirectory()) lines.push(...(await treeOf(cwd, name)));
    else if (entry.isSymbolicLink()) lines.push(`${name} link ${await readlink(path)}`);
    else {
      const { mode } = await stat(path);
      const sum = createHash('sha256')
        .update(await readFile(path))
        .digest('hex');
      lines.push(`${name} ${(mode & 0o7777).toString(8)} ${sum}`);
    }
  }
  return lines.sort();
}

const NAMES = [
  'a',
  'b.txt',
  'dir/c',
  'dir/deep/d',
  'with blank',
  'quote"\\',
  'é',
  'x/y',
  '.gitattributes',
];

/** One random thing that an agent may do to its working tree. */
function step(path: string, next: (below: number) => number): string {
  const name = NAMES[next(NAMES.length)] ?? 'a';
  const other = NAMES[next(NAMES.length)] ?? 'b.txt';
  const q = (text: string) => `'${text}'`;
  const content = [
    'one\\ntwo\\n',
    'crlf\\r\\nline\\r\\n',
    'no end',
    '',
    '\\0\\1binary\\377',
    '$Id$\\n* text=auto eol=crlf\\n',
  ];
  const make = `rm -rf ${q(name)}; mkdir -p "$(dirname ${q(name)})" 2>/dev/null || { rm -rf "$(dirname ${q(name)})"; mkdir -p "$(dirname ${q(name)})"; }`;
  const steps = [
    `${make}; printf '${content[next(content.length)]}' >${q(name)}`,
    `${make}; for i in $(seq ${next(300)}); do echo "line $i ${next(5)}"; done >${q(name)}`,
    `[ -f ${q(name)} ] && echo more >>${q(name)}`,
    `[ -f ${q(name)} ] && [ ! -L ${q(name)} ] && chmod ${next(2) ? '755' : '644'} ${q(name)}`,
    `rm -rf ${q(name)}`,
    `${make}; ln -s ${q(other)} ${q(name)}`,
    `[ -e ${q(name)} ] && [ ! -d ${q(other)} ] && mkdir -p "$(dirname ${q(other)})" && mv ${q(name)} ${q(other)}`,
    `git add -A`,
    `git add -A && git commit -qm x`,
    `git commit -q --amend --allow-empty -m y`,
    `git checkout -q -B branch${next(3)}`,
    `git reset -q ${next(2) ? '--soft' : ''} HEAD~1`,
    `git stash -q`,
    `git rm -q --cached ${q(name)}`,
    `git update-index --assume-unchanged ${q(name)}`,
    `git gc -q`,
  ];
  return `{ ${steps[next(steps.length)] ?? ':'}; } >/dev/null 2>&1 || true`;
}

const histories = Array.from({ length: HISTORIES }, (_, index) => index + 1);

const tried = someAtOnce(histories, 2, async (seed) => {
  const random = new Random(seed);
  const next = (below: number) => random.between(0, below - 1);
  const path = join(root, `history-${seed}`);
  const script = (count: number) => Array.from({ length: count }, () => step(path, next));
  const shell = (lines: string[]) =>
    execute('bash', ['-c', ['umask 022', ...lines].join('\n')], { cwd: path, env: ENV });
  await mkdir(path);
  await shell(['git init -q', ...script(4), 'git add -A; git commit -q --allow-empty -m base']);
  const base = (await git(path, 'rev-parse', 'HEAD')).trim();
  await shell(script(12));
  const { line, rest } = await run(path, patchScript(base));
  expect([seed, line]).toEqual([seed, `${rest.length} ${rest.length}`]);
  const list = await run(path, listScript(base));
  const copy = `${path}-copy`;
  await git(root, 'clone', '-q', '--no-checkout', path, copy);
  await mkdir(join(copy, '.git/info'), { recursive: true });
  await writeFile(join(copy, '.git/info/attributes'), '* -text -ident -filter\n');
  await git(copy, 'fetch', '-q', path, base);
  await git(copy, 'checkout', '-q', base);
  await writeFile(`${copy}.patch`, rest);
  if (rest.length > 0) {
    await git(copy, 'apply', '--index', '--whitespace=nowarn', `${copy}.patch`);
  }
  expect([seed, await treeOf(copy)]).toEqual([seed, await treeOf(path)]);
  const changed = parseChanges(list.rest).length;
  expect([seed, changed > 0]).toEqual([seed, rest.length > 0]);
  await rm(path, { recursive: true });
  await rm(copy, { recursive: true });
});

describe('the changes of a repository', () => {
  it(`make the same tree of the base, for ${HISTORIES} random histories`, async () => {
    await Promise.all(histories.map((_seed, index) => tried.result(index)));
  }, 270_000);

  it('run nothing of a hostile repository, and do not hang', async () => {
    const path = join(root, 'hostile');
    const ran = join(root, 'ran');
    const trap = join(root, 'trap.sh');
    await writeFile(trap, `#!/bin/sh\necho "$0 $*" >>${ran}\ncat 2>/dev/null\nexit 0\n`, {
      mode: 0o755,
    });
    await mkdir(path);
    await git(path, 'init', '-q');
    await writeFile(join(path, 'a'), 'one\n');
    await writeFile(join(path, 'fifo'), 'was a file\n');
    await writeFile(join(path, 'secret'), 'unchanged\n');
    await git(path, 'add', '-A');
    await git(path, 'commit', '-qm', 'base');
    const base = (await git(path, 'rev-parse', 'HEAD')).trim();
    // A nested repository with traps of its own, which the agent has made a submodule.
    const nested = join(path, 'nested');
    await mkdir(nested);
    await git(nested, 'init', '-q');
    await writeFile(join(nested, 'n'), 'n\n');
    await git(nested, 'add', '-A');
    await git(nested, 'commit', '-qm', 'nested');
    await git(path, 'add', '-A');
    await git(path, 'commit', '-qm', 'with a submodule');
    await writeFile(join(nested, 'n'), 'dirty\n');
    for (const repository of [path, nested]) {
      const include = join(repository, '.git', 'more');
      await writeFile(include, `[core]\n\tfsmonitor = ${trap}\n\tpager = ${trap}\n`);
      const keys = {
        'core.fsmonitor': trap,
        'core.hooksPath': join(root, 'hooks'),
        'core.sshCommand': trap,
        'core.editor': trap,
        'core.attributesFile': join(root, 'attributes'),
        'diff.external': trap,
        'diff.x.command': trap,
        'diff.x.textconv': trap,
        'filter.x.clean': trap,
        'filter.x.smudge': trap,
        'filter.x.process': trap,
        'filter.x.required': 'true',
        'include.path': include,
        'alias.read-tree': `!${trap}`,
        'alias.diff-index': `!${trap}`,
        'uploadpack.packObjectsHook': trap,
        'extensions.partialClone': 'origin',
        'remote.origin.promisor': 'true',
        'remote.origin.url': `ext::${trap}`,
        'core.alternateRefsCommand': trap,
        'gpg.program': trap,
      };
      for (const [key, value] of Object.entries(keys)) await git(repository, 'config', key, value);
      await writeFile(
        join(repository, '.gitattributes'),
        '* filter=x diff=x text eol=crlf ident\n',
      );
    }
    await mkdir(join(root, 'hooks'));
    for (const hook of [
      'post-index-change',
      'pre-commit',
      'fsmonitor-watchman',
      'post-checkout',
      'reference-transaction',
    ]) {
      await writeFile(join(root, 'hooks', hook), `#!/bin/sh\necho ${hook} >>${ran}\n`, {
        mode: 0o755,
      });
      await writeFile(join(path, '.git/hooks', hook), `#!/bin/sh\necho ${hook} >>${ran}\n`, {
        mode: 0o755,
      });
    }
    await writeFile(join(path, '.git/index'), Buffer.alloc(5_000_000, 'DIRC'));
    await rm(join(path, 'fifo'));
    execFileSync('mkfifo', [
      join(path, 'fifo'),
      join(path, 'other-fifo'),
      join(path, '.git/info/exclude2'),
    ]);
    await rm(join(path, '.git/info/exclude'), { force: true });
    execFileSync('mkfifo', [join(path, '.git/info/exclude')]);
    await symlink('/etc', join(path, 'etc'));
    await symlink(path, join(path, 'loop'));
    await chmod(join(path, 'a'), 0o755);
    await rm(ran, { force: true });
    const list = await run(path, listScript(base));
    expect(existsSync(ran) ? await readFile(ran, 'utf8') : '').toBe('');
    const changed = parseChanges(list.rest).map((file) => `${file.status} ${file.path}`);
    expect(changed.sort()).toEqual([
      'added .gitattributes',
      'added etc',
      'added loop',
      'added nested',
      'deleted fifo',
      'modified a',
    ]);
    const { rest } = await run(path, patchScript(base));
    expect(existsSync(ran) ? await readFile(ran, 'utf8') : '').toBe('');
    expect(rest.toString()).not.toContain('root:x:0');
  });

  it('have the files of nested repositories without a commit, and other nested ones', async () => {
    const path = join(root, 'scaffolded');
    const shell = (script: string) =>
      execute('bash', ['-ec', script], { cwd: path, env: { ...ENV, TMPDIR: root } });
    await mkdir(path);
    await shell('git init -q; echo one >a; echo two >file; git add -A; git commit -qm base');
    const base = (await git(path, 'rev-parse', 'HEAD')).trim();
    await shell(`echo new >new.txt; rm file; git init -q file
      git init -q sub; echo in >'sub/with blank'; echo junk >sub/.gitignore; echo no >sub/junk; mkfifo sub/pipe
      git init -q sub/deep; echo deep >sub/deep/d
      git init -q made; echo m >made/m; git -C made add -A; git -C made commit -qm made
      git init -q empty`);
    const list = await run(path, listScript(base));
    const changed = parseChanges(list.rest).map((file) => `${file.status} ${file.path}`);
    expect(changed.sort()).toEqual([
      'added made',
      'added new.txt',
      'added sub/.gitignore',
      'added sub/deep/d',
      'added sub/with blank',
      'deleted file',
    ]);
    const { line, rest } = await run(path, patchScript(base));
    expect(line).toBe(`${rest.length} ${rest.length}`);
    expect(rest.toString()).toContain('+deep');
  });

  it('name files that are too long for a patch, without reading them', async () => {
    const path = join(root, 'long');
    const length = MAX_PATCH_BYTES + 1;
    const shell = (script: string) => execute('bash', ['-ec', script], { cwd: path, env: ENV });
    await mkdir(path);
    await shell(`git init -q; echo one >a; echo one >grown; truncate -s ${length} same touched; truncate -s 9 'short one'
      git add -A; git commit -qm base`);
    const base = (await git(path, 'rev-parse', 'HEAD')).trim();
    // To read all of the long ones would take hours.
    await shell(`echo two >a; printf x | dd of=touched conv=notrunc status=none; truncate -s 4T grown 'new one'
      chmod 755 'new one'; rm 'short one'; mkdir 'short one'; truncate -s 4T 'short one/long'; git init -q sub
      truncate -s 4T sub/long; echo in >sub/short; echo ignored >.gitignore; truncate -s 4T ignored`);
    const list = await run(path, listScript(base));
    const changed = parseChanges(list.rest);
    expect(changed.map((file) => `${file.status} ${file.path}`).sort()).toEqual([
      'added .gitignore',
      'added new one',
      'added short one/long',
      'added sub/long',
      'added sub/short',
      'deleted short one',
      'modified a',
      'modified grown',
      'modified touched',
    ]);
    expect(changed.find((file) => file.path === 'grown')).toMatchObject({ additions: null });
    const patch = await run(path, patchScript(base));
    const [whole, kept] = patch.line.split(' ').map(Number);
    expect(kept).toBe(patch.rest.length);
    expect(whole).toBe(patch.rest.length + 10 ** 12);
    expect(patch.rest.toString()).toContain('+two');
    expect(patch.rest.toString()).toContain('sub/short');
    expect(patch.rest.toString()).not.toMatch(/grown|touched|long$|new one|same/m);
    const captured = await run(path, captureScript(base, 10));
    expect(captured.line).toBe(`${base} ${list.rest.length} ${whole} 10`);
    expect(captured.rest).toEqual(Buffer.concat([list.rest, patch.rest.subarray(0, 10)]));
  }, 60_000);

  it('fail within the time limit', async () => {
    const path = join(root, 'endless');
    await mkdir(path);
    // No other run on this host sleeps for this time.
    const sleep = `sleep ${2_000_000 + process.pid}`;
    const script = `${sleep} & setsid ${sleep} & echo begun; ${sleep}`;
    const output: string[] = [];
    await expect(async () => {
      const parts = filesBelow(root).script({ path, script, limitMs: 700, signal });
      for await (const part of parts) output.push(part.toString());
    }).rejects.toMatchObject({ kind: 'failed', message: 'it took too long' });
    expect(output).toEqual(['begun\n']);
    const running = execFileSync('ps', ['-eo', 'args'], { encoding: 'utf8' }).split('\n');
    expect(running).not.toContain(sleep);
  });
});
