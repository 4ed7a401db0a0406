import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { needsCompiler } from './native.mjs';

const STEP_TIMEOUT_MS = 5 * 60_000;
const TRIES = 3;
const PAUSE_SECONDS = 10;

/** How each package manager installs without a question, and what it may have to do before. */
const MANAGERS = [
  { name: 'apt-get', refresh: ['update', '-qq'], install: ['install', '-y'] },
  { name: 'dnf', install: ['install', '-y'] },
  { name: 'yum', install: ['install', '-y'] },
  { name: 'zypper', install: ['--non-interactive', 'install'] },
  { name: 'pacman', install: ['-S', '--noconfirm', '--needed'] },
  { name: 'apk', install: ['add'] },
];

/** What sandboxes need of the system: isolation, and on Debian a root file system to install software into. */
const NEEDED = [
  { program: 'bwrap', name: 'bubblewrap' },
  { program: 'debootstrap', name: 'debootstrap', only: 'apt-get' },
];
/** The packages with a C compiler, by package manager. Keep in step with src/sandboxes/driver/local/preflight.ts. */
const COMPILER = {
  'apt-get': ['gcc', 'libc6-dev'],
  dnf: ['gcc', 'glibc-static'],
  yum: ['gcc', 'glibc-static'],
  zypper: ['gcc', 'glibc-devel-static'],
  pacman: ['gcc'],
  apk: ['gcc', 'musl-dev'],
};

/**
 * Makes sure that the system packages that local sandboxes need are there. Root gets them installed; anybody else is
 * told the command. Never stops a start: without them the service runs and refuses sessions with the reason.
 *
 * @param {(line: string) => void} say
 */
export function ensureSystemPackages(say) {
  if (process.platform !== 'linux') return;
  const manager = MANAGERS.find(({ name }) => has(name));
  const missing = NEEDED.filter(
    ({ program, only }) => !has(program) && (only === undefined || only === manager?.name),
  ).map(({ name }) => name);
  if (needsCompiler() && !(has('cc') && existsSync('/usr/include/stdio.h')))
    missing.push(...(COMPILER[manager?.name] ?? ['a C compiler with a static C library']));
  if (missing.length === 0) return;
  const what = missing.join(' and ');
  if (manager === undefined) {
    say(`Missing, and needed by sandboxes: ${what}. Install it with your package manager.`);
    return;
  }
  const { name, refresh, install } = manager;
  if (process.geteuid?.() !== 0) {
    say(
      `Missing, and needed by sandboxes: ${what}. Run: sudo ${name} ${install.join(' ')} ${missing.join(' ')}`,
    );
    return;
  }
  say(`Installing ${what}, which sandboxes need (${name}) …`);
  const failure = installWith({ name, refresh, install }, missing);
  if (failure !== null) say(`${what} could not be installed: ${failure}`);
}

/**
 * Makes sure that programs of Debian that tests need are there. Root gets them installed; anybody else is told what is
 * missing, and the tests that need it are skipped.
 *
 * @param {[program: string, debianPackage: string][]} programs
 * @param {string[]} pythonModules of Debian's Python
 * @param {(line: string) => void} say
 */
export function ensurePrograms(programs = [], pythonModules = [], say) {
  const missing = programs.filter(([program]) => !has(program)).map(([, name]) => name);
  for (const module of pythonModules) {
    const found = spawnSync('/usr/bin/python3', ['-c', `import ${module}`], { stdio: 'ignore' });
    if (found.status !== 0) missing.push(`python3-${module}`);
  }
  if (missing.length === 0) return;
  const what = missing.join(' ');
  if (process.geteuid?.() !== 0 || !has('apt-get')) {
    say(`Missing, so that some tests are skipped: ${what} (packages of Debian)`);
    return;
  }
  say(`Installing ${what}, which tests need …`);
  const [manager] = MANAGERS;
  const failure = installWith(manager, ['--no-install-recommends', ...missing]);
  if (failure !== null) say(`${what} could not be installed: ${failure}`);
}

/** A mirror may be away for a moment, so this tries again. @returns what went wrong; `null` if nothing did */
function installWith({ name, refresh, install }, packages) {
  for (let tries = 1; ; tries += 1) {
    // Package lists that cannot be refreshed may still do.
    if (refresh) run(name, refresh);
    const { status, stderr, error } = run(name, [...install, ...packages]);
    if (status === 0) return null;
    if (tries === TRIES) return error?.message ?? stderr.trim().split('\n').at(-1);
    spawnSync('sleep', [String(PAUSE_SECONDS)]);
  }
}

function run(file, args) {
  return spawnSync(file, args, {
    stdio: ['ignore', 'ignore', 'pipe'],
    encoding: 'utf8',
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    timeout: STEP_TIMEOUT_MS,
  });
}

function has(program) {
  return (
    spawnSync('sh', ['-c', `PATH="$PATH:/usr/sbin:/sbin" command -v ${program}`], {
      stdio: 'ignore',
    }).status === 0
  );
}
