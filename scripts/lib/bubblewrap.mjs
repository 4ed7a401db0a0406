import { spawnSync } from 'node:child_process';

const STEP_TIMEOUT_MS = 5 * 60_000;

/** How each package manager installs without a question, and what it may have to do before. */
const MANAGERS = [
  { name: 'apt-get', refresh: ['update', '-qq'], install: ['install', '-y'] },
  { name: 'dnf', install: ['install', '-y'] },
  { name: 'yum', install: ['install', '-y'] },
  { name: 'zypper', install: ['--non-interactive', 'install'] },
  { name: 'pacman', install: ['-S', '--noconfirm', '--needed'] },
  { name: 'apk', install: ['add'] },
];

/**
 * Makes sure that bubblewrap, from which the local sandboxes get their isolation, is there. Root
 * gets it installed; anybody else is told the command. Never stops a start: without it the service
 * runs and refuses sessions with the reason.
 *
 * @param {(line: string) => void} say
 */
export function ensureBubblewrap(say) {
  if (process.platform !== 'linux' || has('bwrap')) return;
  const manager = MANAGERS.find(({ name }) => has(name));
  if (manager === undefined) {
    say('bubblewrap is missing, which sandboxes need: install it with your package manager.');
    return;
  }
  const { name, refresh, install } = manager;
  if (process.geteuid?.() !== 0) {
    say(
      `bubblewrap is missing, which sandboxes need: sudo ${name} ${install.join(' ')} bubblewrap`,
    );
    return;
  }
  say(`Installing bubblewrap, which sandboxes need (${name}) …`);
  // Package lists that cannot be refreshed may still do.
  if (refresh) run(name, refresh);
  const { status, stderr, error } = run(name, [...install, 'bubblewrap']);
  if (status !== 0)
    say(`bubblewrap could not be installed: ${error?.message ?? stderr.trim().split('\n').at(-1)}`);
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
  return spawnSync('sh', ['-c', `command -v ${program}`], { stdio: 'ignore' }).status === 0;
}
