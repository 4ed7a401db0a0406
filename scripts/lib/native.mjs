import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './paths.mjs';

const FOLDER = join(ROOT, 'native');
/** The programs and their sources. The service looks for them here; see src/supervisor/confine.ts. */
const PROGRAMS = {
  confine: [
    'confine.c',
    'options.c',
    'input.c',
    'reap.c',
    'files.c',
    'resolve.c',
    'tree.c',
    'serve-files.c',
    'file-frames.c',
    'run-script.c',
    'mounts.c',
  ],
  listen: ['listen.c'],
  stack: ['stack.c'],
};
const HEADERS = ['confine.h', 'files.h', 'file-frames.h'];
const TARGET = join(ROOT, 'dist', 'native', process.arch);
const CACHE = join(ROOT, 'node_modules', '.cache', 'native');
const FLAGS = ['-static', '-O2', '-std=gnu17', '-Wall', '-Wextra', '-Werror', '-s'];
const TIMEOUT_MS = 60_000;

/** The cached programs for the current sources. The cache survives a build that empties `dist`. */
function cached() {
  const hash = createHash('sha256').update(`${process.arch} ${FLAGS.join(' ')}\n`);
  for (const file of [...HEADERS, ...Object.values(PROGRAMS).flat()]) {
    hash.update(readFileSync(join(FOLDER, file)));
  }
  return join(CACHE, hash.digest('hex').slice(0, 24));
}

/** Whether the programs have to be compiled before they can be built. */
export function needsCompiler() {
  return process.platform === 'linux' && !existsSync(cached());
}

/**
 * Puts the native programs into `dist`, compiling them if their sources have changed. A failure does not fail the
 * build: without them the service starts, and answers requests for sessions with the reason.
 *
 * @param {(line: string) => void} say
 */
export function buildNative(say) {
  if (process.platform !== 'linux') return;
  const folder = cached();
  if (!existsSync(folder) && !compile(folder, say)) return;
  mkdirSync(TARGET, { recursive: true });
  for (const name of Object.keys(PROGRAMS)) {
    // Under a name of its own first: a running sandbox may execute the present one.
    const draft = join(TARGET, `${name}.${process.pid}`);
    copyFileSync(join(folder, name), draft);
    renameSync(draft, join(TARGET, name));
  }
}

/** @returns {boolean} whether the folder has all programs now */
function compile(folder, say) {
  const draft = `${folder}.${process.pid}`;
  mkdirSync(draft, { recursive: true });
  for (const [name, sources] of Object.entries(PROGRAMS)) {
    const { status, stderr, error } = spawnSync(
      'cc',
      [...FLAGS, '-o', join(draft, name), ...sources.map((source) => join(FOLDER, source))],
      { encoding: 'utf8', timeout: TIMEOUT_MS },
    );
    if (status === 0) continue;
    const why = error?.code === 'ENOENT' ? 'there is no C compiler' : stderr.trim();
    say(`The native program ${name} could not be built: ${why || error?.message}`);
    rmSync(draft, { recursive: true, force: true });
    return false;
  }
  try {
    renameSync(draft, folder);
  } catch {
    // Another build was faster.
    rmSync(draft, { recursive: true, force: true });
  }
  return true;
}
