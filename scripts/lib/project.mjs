import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, lstatSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { buildConsole } from './console.mjs';
import { buildNative } from './native.mjs';
import { ROOT } from './paths.mjs';
import { NODE, StepError } from './step.mjs';

export { NODE, ROOT, StepError };

const INSTALL_MARK = join(ROOT, 'node_modules', '.install-mark');
const BUILD_MARK = join(ROOT, 'dist', '.build-mark');
/** What the build is made of. */
const SOURCES = [
  'src',
  'migrations',
  'native',
  'console',
  join('scripts', 'bundle.mjs'),
  'package.json',
  'nest-cli.json',
  'tsconfig.json',
  'tsconfig.build.json',
];
const INSTALL_TIMEOUT_MS = 15 * 60_000;
const BUILD_TIMEOUT_MS = 5 * 60_000;

/**
 * Installs and builds what is missing or out of date.
 *
 * @param {(line: string) => void} say takes one line for each step that is taken
 */
export function prepare(say) {
  if (Number(process.versions.node.split('.')[0]) < 18)
    throw new StepError(`Node 18 or later is needed to start (this is ${process.version})`);
  install(say);
  build(say);
}

function install(say) {
  const lockFile = readFileSync(join(ROOT, 'package-lock.json'));
  const wanted = hash([lockFile, `${process.platform} ${process.arch}`]);
  if (readMark(INSTALL_MARK) === wanted) return;
  if (!isInstalledByHand(lockFile)) {
    if (lstatSync(join(ROOT, 'node_modules'), { throwIfNoEntry: false })?.isSymbolicLink())
      throw new StepError(
        'node_modules is a link to an install that does not match package-lock.json',
      );
    say('Installing the locked packages (npm ci) …');
    npm(['ci', '--no-audit', '--no-fund', '--loglevel=error']);
  }
  writeFileSync(INSTALL_MARK, wanted);
}

/** npm keeps its own account of what it put into node_modules, also when somebody else called it. */
function isInstalledByHand(lockFile) {
  const account = join(ROOT, 'node_modules', '.package-lock.json');
  if (!existsSync(account) || !existsSync(NODE)) return false;
  const installed = JSON.parse(readFileSync(account, 'utf8')).packages;
  const locked = JSON.parse(lockFile.toString()).packages;
  delete locked[''];
  return Object.entries(locked).every(([path, { version, optional }]) =>
    installed[path] ? installed[path].version === version : optional,
  );
}

function build(say) {
  const wanted = hash(SOURCES.flatMap(contents));
  // Also when nothing has changed: a compiler may have come since.
  if (readMark(BUILD_MARK) === wanted) {
    buildNative(say);
    return;
  }
  say('Building …');
  run(join('node_modules', '@nestjs', 'cli', 'bin', 'nest.js'), 'build');
  run(join('scripts', 'bundle.mjs'));
  buildConsole();
  buildNative(say);
  writeFileSync(BUILD_MARK, wanted);
}

function run(...program) {
  const { status, signal, stdout, stderr } = spawnSync(NODE, program, {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: BUILD_TIMEOUT_MS,
  });
  if (status !== 0)
    throw new StepError(`The build failed (${signal ?? status}):\n${stdout ?? ''}${stderr ?? ''}`);
}

/**
 * Runs npm, the very one that runs us if any does.
 *
 * @param {string[]} args
 */
export function npm(args) {
  const self = process.env.npm_execpath;
  const [file, first] = self?.endsWith('.js') ? [process.execPath, [self]] : ['npm', []];
  // npm's warnings go to standard error; its account of what it added is of no interest here.
  const { status, signal, error } = spawnSync(file, [...first, ...args], {
    cwd: ROOT,
    stdio: ['ignore', 'ignore', 'inherit'],
    timeout: INSTALL_TIMEOUT_MS,
  });
  if (status !== 0)
    throw new StepError(`npm ${args[0]} failed (${error?.message ?? signal ?? status})`);
}

/** The names and contents of a file, or of all files in a folder, in a fixed order. */
function contents(path) {
  const full = join(ROOT, path);
  const kind = lstatSync(full, { throwIfNoEntry: false });
  if (kind === undefined) return [];
  if (kind.isFile()) return [path, readFileSync(full)];
  return readdirSync(full)
    .sort()
    .filter((name) => !name.endsWith('.spec.ts') && name !== 'schema.d.ts')
    .flatMap((name) => contents(join(path, name)));
}

function hash(parts) {
  const sum = createHash('sha256');
  for (const part of parts) sum.update(`${part.length}:`).update(part);
  return sum.digest('hex');
}

function readMark(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
