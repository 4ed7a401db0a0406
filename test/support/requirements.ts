import { spawnSync } from 'node:child_process';
import { describe, test } from '@jest/globals';
import { onDocker, onSprites } from './driver.js';

/** Pieces of the system that some tests cannot do without, each with how to find out. */
const CHECKS = {
  root: () => process.geteuid?.() === 0,
  'an ordinary user': () => process.geteuid?.() !== 0,
  'mount namespaces': () => runs('unshare', '--mount', 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt'),
  bubblewrap: () =>
    runs('bwrap', '--version') &&
    // As root the sandboxes drop to another user first; that one needs the namespaces.
    runs(...asUnprivileged('bwrap', '--ro-bind', '/', '/', '--unshare-all', 'true')),
  debootstrap: () => runs('sh', '-c', 'PATH=$PATH:/usr/sbin:/sbin command -v debootstrap'),
  /** Wherever services of the test file make them. */
  sandboxes: (): boolean =>
    onSprites()
      ? has('root') && has('mount namespaces')
      : has(onDocker() ? 'a Docker engine' : 'bubblewrap'),
  'sandboxes with software': (): boolean =>
    has('sandboxes') && (onDocker() || onSprites() || has('debootstrap')),
  'sandboxes on this host': (): boolean => !onDocker() && !onSprites() && has('bubblewrap'),
  /** Sprites connect directly to hosts for which they have no credentials. */
  'a gateway for all connections': (): boolean => !onSprites(),
  'a Docker engine': () => runs(process.execPath, '-e', ASK_ENGINE),
  /** One that answers is required by whoever names it: its absence must not look like a skipped test. */
  'a Kubernetes cluster': () => process.env['KUBECONFIG'] !== undefined,
  dockerd: () => runs('dockerd', '--version'),
  python3: () => runs('/usr/bin/python3', '--version'),
  /** What a generated client imports; Debian has each as `python3-<name>`. */
  'python3 with certifi, dateutil, six and urllib3': () =>
    runs('/usr/bin/python3', '-c', 'import certifi, dateutil, six, urllib3'),
  /** For the console. */
  chromium: () => runs('sh', '-c', 'command -v chromium'),
  curl: () => runs('curl', '--version'),
  java: () => runs('javac', '-version'),
  promtool: () => runs('promtool', '--version'),
  nginx: () => runs('sh', '-c', 'PATH=$PATH:/usr/sbin:/sbin nginx -v'),
  'git lfs': () => runs('git', 'lfs', 'version'),
  'git http-backend': () => runs('sh', '-c', 'test -x "$(git --exec-path)/git-http-backend"'),
} as const;

/** Ends with 0 if the engine at DOCKER_HOST, a unix socket, answers. */
const ASK_ENGINE = `
const socketPath = (process.env.DOCKER_HOST ?? 'unix:///var/run/docker.sock').replace(/^unix:\\/\\//, '');
require('node:http').get({ socketPath, path: '/_ping', timeout: 5000 }, (r) => process.exit(r.statusCode === 200 ? 0 : 1))
  .on('error', () => process.exit(1));`;

export type Requirement = keyof typeof CHECKS;

const known = new Map<Requirement, boolean>();

/** Whether this machine has the piece. */
function has(requirement: Requirement): boolean {
  let answer = known.get(requirement);
  if (answer === undefined) known.set(requirement, (answer = CHECKS[requirement]()));
  return answer;
}

/** `describe` where the pieces are there; else skipped, with what is missing in the name. */
export function describeWith(requirements: Requirement[], name: string, body: () => void): void {
  const missing = requirements.filter((requirement) => !has(requirement));
  if (missing.length === 0) describe(name, body);
  else describe.skip(`${name} [needs ${missing.join(', ')}]`, body);
}

/** `test` in the same way. */
export function testWith(
  requirements: Requirement[],
  name: string,
  body: () => Promise<void> | void,
  timeoutMs?: number,
): void {
  const missing = requirements.filter((requirement) => !has(requirement));
  if (missing.length === 0) test(name, body, timeoutMs);
  else test.skip(`${name} [needs ${missing.join(', ')}]`, body, timeoutMs);
}

function asUnprivileged(...command: string[]): string[] {
  if (!has('root')) return command;
  return ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', ...command];
}

function runs(...[file = '', ...args]: string[]): boolean {
  return spawnSync(file, args, { stdio: 'ignore', timeout: 20_000 }).status === 0;
}
