/**
 * Prepares a pod before its containers start, as the agent's user: proves that the network policy is enforced, copies
 * our programs to a volume of the pod, and makes the folders on the sandbox's volume. Its argument is a
 * {@link Preparation} as JSON. Writes what keeps it from succeeding where Kubernetes shows it.
 */
import { chmodSync, mkdirSync, realpathSync, statSync, writeFileSync } from 'node:fs';
import { copyFile, mkdir } from 'node:fs/promises';
import { connect } from 'node:net';
import { basename, dirname, join, relative } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { packageRoot } from '../../../../common/package-root.js';
import { confineProgram } from '../../../../supervisor/confine.js';
import { filesBelow, sharedLibraries, withoutPreload } from '../../runtime-files.js';
import { type ForbiddenAddress, OPEN_NETWORK, type Preparation } from './preparation.js';
import { readFileSync } from 'node:fs';

/** A connection that is not made within this time is refused: within a cluster, it takes a few milliseconds. */
const ATTEMPT_MS = 700;
/** Policies are not immediate everywhere. */
const SETTLE_MS = 20_000;
const RETRY_MS = 250;
const TERMINATION_LOG = '/dev/termination-log';
/** The shim and what it imports. */
const PARTS = [
  'dist/src/supervisor',
  'dist/src/gateway/client.js',
  'dist/src/gateway/egress',
  'dist/src/gateway/network/dial-gateway.js',
  'dist/src/gateway/network/trust.js',
  'dist/src/gateway/protocol.js',
  'dist/src/gateway/read-line.js',
  'dist/src/gateway/socket-path.js',
  'dist/src/common',
];

function fail(code: number, message: string): never {
  process.stderr.write(`${message}\n`);
  try {
    writeFileSync(TERMINATION_LOG, message);
  } catch {
    // Kubernetes shows the exit code alone.
  }
  process.exit(code);
}

/** Whether the address accepts a connection. */
function isOpen({ host, port }: ForbiddenAddress): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const settle = (open: boolean): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(open);
    };
    const timer = setTimeout(() => settle(false), ATTEMPT_MS);
    socket.once('connect', () => settle(true));
    socket.once('error', () => settle(false));
  });
}

async function proveClosed(forbidden: readonly ForbiddenAddress[]): Promise<void> {
  const until = Date.now() + SETTLE_MS;
  for (;;) {
    const open = await Promise.all(forbidden.map(isOpen));
    const reached = forbidden.filter((_address, i) => open[i]);
    if (reached.length === 0) return;
    if (Date.now() > until) {
      const [first] = reached;
      fail(
        OPEN_NETWORK,
        `the cluster does not enforce network policies: ${first?.host} port ${first?.port} was reached`,
      );
    }
    await delay(RETRY_MS);
  }
}

async function copyPrograms(to: string): Promise<void> {
  const root = packageRoot();
  const write = (path: string, content: Buffer | string, mode: number): void => {
    mkdirSync(dirname(join(to, path)), { recursive: true });
    writeFileSync(join(to, path), content);
    chmodSync(join(to, path), mode);
  };
  await mkdir(join(to, 'bin'), { recursive: true });
  const node = copyFile(realpathSync(process.execPath), join(to, 'bin/node'));
  for (const part of PARTS) {
    for (const { path, read, mode } of filesBelow(root, part)) write(path, read(), mode);
  }
  write('package.json', '{"type":"module"}\n', 0o444);
  for (const path of sharedLibraries()) {
    const name = basename(path);
    const isLoader = /^ld[-.]/.test(name);
    const content = readFileSync(path);
    // A program that its user may execute but not read hides its memory from the other processes of that user.
    if (isLoader) write('lib/loader', withoutPreload(content), 0o111);
    else write(`lib/${name}`, content, 0o444);
  }
  write(relative(root, confineProgram(root)), readFileSync(confineProgram(root)), 0o111);
  await node;
}

function makeFolders(volume: string, folders: Preparation['folders']): void {
  for (const { name, mode } of folders) {
    const path = join(volume, name);
    try {
      mkdirSync(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      // Made by a pod before this one. If that ended in between, it lacks the mode.
      if (statSync(path).mode & 0o2000) chmodSync(path, mode);
      continue;
    }
    // Without the mark of the group, which new folders inherit from the volume and would pass on.
    chmodSync(path, mode);
  }
}

const { forbidden, programs, volume, folders } = JSON.parse(process.argv[2] ?? '') as Preparation;
const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = process.env;
const apiServer = host === undefined ? [] : [{ host, port: Number(port ?? 443) }];
try {
  makeFolders(volume, folders);
  await Promise.all([proveClosed([...forbidden, ...apiServer]), copyPrograms(programs)]);
} catch (error) {
  fail(1, `the sandbox's volume cannot be prepared: ${(error as Error).message}`);
}
