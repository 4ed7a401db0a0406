/**
 * The first process of the supervisor's container of a pod. Waits for the shim, which starts the agents in the other
 * container, and then answers workers. Ends with the shim, or when the pod has been idle: the pod ends then, its volume
 * stays, and the next connection of a worker makes another pod. Its argument is a {@link PodSetup} as JSON.
 */
import { chmodSync, mkdirSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { packageRoot } from '../../../../common/package-root.js';
import { readLine } from '../../../../gateway/read-line.js';
import { confineProgram } from '../../../../supervisor/confine.js';
import { CallConnection } from '../../../../supervisor/protocol/call-client.js';
import { serveCalls } from '../../../../supervisor/protocol/call-server.js';
import { serveSupervisor } from '../../../../supervisor/serve-supervisor.js';
import { passedOn, shimSupervisor } from '../../../../supervisor/shim/shim-supervisor.js';
import { SUPERVISOR_NODE_FLAGS } from '../../../../supervisor/start.js';
import { type Arrangement, type PodSetup, WORKER_SOCKET } from './arrangement.js';
import { launchSocket } from './launch-socket.js';
import { PodNetwork } from './pod-network.js';

const LINE_MS = 30_000;
/** The arrangement may contain the certificates of a company. */
const LINE_BYTES = 1024 * 1024;
const IDLE_CHECK_MS = 1_000;
/** Exit codes, for those who read the state of the pod. */
const SHIM_ENDED = 3;

const setup = JSON.parse(process.argv[2] ?? '') as PodSetup;
process.umask(0o077);
// The first process of a container ignores signals without a handler.
process.on('SIGTERM', () => process.exit(0));

const launches = join(setup.state, 'launches');
mkdirSync(launches, { recursive: true, mode: 0o700 });
const network = new PodNetwork(join(setup.state, 'network.json'));
const counted = { running: 0, workers: 0, hadTurn: false };
let idleSince = performance.now();

/** Only the first connection is the shim's: it connects before anything of a tenant runs. */
function shimConnects(): Promise<Socket> {
  const { socket: path } = setup.shim;
  rmSync(path, { force: true });
  return new Promise((resolve) => {
    const server = createServer((connection) => {
      server.close();
      rmSync(path, { force: true });
      resolve(connection);
    });
    server.maxConnections = 1;
    server.listen(path, () => chmodSync(path, 0o666));
  });
}

const connection = await shimConnects();
connection.once('close', () => process.exit(SHIM_ENDED));
const shim = new CallConnection(connection);

const root = packageRoot();
const main = [
  process.execPath,
  ...SUPERVISOR_NODE_FLAGS,
  join(root, 'dist/src/supervisor/main.js'),
];
const supervisor = shimSupervisor({ launches, confine: confineProgram(root), main }, shim);

createServer((client) => {
  client.on('error', () => undefined);
  serveCalls(client, passedOn(shim, counted)).catch(() => client.destroy());
}).listen(launchSocket(setup.sockets));

createServer((worker) => {
  counted.workers += 1;
  worker.once('close', () => {
    counted.workers -= 1;
    idleSince = performance.now();
  });
  worker.on('error', () => undefined);
  serve(worker).catch((error: unknown) => {
    process.stderr.write(`${String(error)}\n`);
    worker.destroy();
  });
}).listen(join(setup.sockets, WORKER_SOCKET));

async function serve(worker: Socket): Promise<void> {
  const line = await readLine(worker, LINE_MS, LINE_BYTES);
  await network.arrange(JSON.parse(line) as Arrangement);
  await serveSupervisor(worker, supervisor);
}

setInterval(() => {
  const now = performance.now();
  if (counted.running > 0 || counted.workers > 0) idleSince = now;
  const { first, later } = setup.idleSeconds;
  if (now - idleSince > (counted.hadTurn ? later : first) * 1000) process.exit(0);
}, IDLE_CHECK_MS);
