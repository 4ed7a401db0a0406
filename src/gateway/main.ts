/**
 * The gateway: connects sandboxes to the network, and forwards requests with grants. It runs detached, so that model
 * responses continue when the service ends. Started again with another configuration, the new process takes over the
 * socket and the old one exits when its connections have ended. See GatewayConfig.
 */
import { chmodSync, renameSync, rmSync, statSync } from 'node:fs';
import type { Server, Socket } from 'node:net';
import { createServer } from 'node:net';
import { basename, dirname } from 'node:path';
import { text } from 'node:stream/consumers';
import { configFrom, type GatewayConfig } from './gateway-config.js';
import { openGatewayService } from './gateway-service.js';
import { LogFile } from './log-file.js';
import { createGateway } from './server.js';

const WATCH_MS = 1000;
/** How long it waits for its first connection. Longer than START_MS of the keeper, which starts it and then connects. */
const FIRST_CONNECTION_MS = 20_000;

const config = JSON.parse(configFrom(process.env) ?? (await text(process.stdin))) as GatewayConfig;

// Opened before the change of the user.
const output = config.logFile === undefined ? process.stdout : new LogFile(config.logFile);

const { broker, usage, relays } = await openGatewayService({
  ...config,
  folder: dirname(config.socket),
  log: (entry) => void output.write(`${JSON.stringify(entry)}\n`),
});
const gateway = createGateway(relays);

const connections = new Set<Socket>();
let idle: NodeJS.Timeout | undefined;
let isReplaced = false;

/** Exits when the last connection has ended: at once if another gateway has taken over, else after a while. */
function waitForConnections(idleMs = config.idleMs): void {
  clearTimeout(idle);
  idle = setTimeout(exit, isReplaced ? 0 : idleMs);
}

function exit(): void {
  usage.close();
  process.exit(0);
}

/** Whether nothing is left to do but for workers to read usage, and they have read it. */
function isFinished(): boolean {
  return isReplaced && usage.isEmpty && connections.size <= usage.readerCount;
}

function count(server: Server): void {
  server.on('connection', (client: Socket) => {
    connections.add(client);
    clearTimeout(idle);
    client.once('close', () => {
      connections.delete(client);
      if (connections.size === 0) waitForConnections();
    });
  });
}

/** The inode of the socket file; `undefined` if there is none. */
function inodeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.ino;
}

function listen(server: Server, where: string | { host: string; port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(where, () => resolve());
  });
}

process.on('SIGTERM', exit);
const name = basename(config.socket);
// In containers, gateways that share the folder have the same process id, and one that was killed may have left a file.
const draft = `${name}.${config.version}.${String(process.pid)}`;
rmSync(draft, { force: true });
count(gateway);
await listen(gateway, draft);
chmodSync(draft, 0o666);
if (config.listen) {
  const open = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true });
  open.on('connection', (client) => broker.serve(client, null));
  count(open);
  await listen(open, config.listen);
}
const own = inodeOf(draft);
renameSync(draft, name);
if (config.user !== null) {
  process.setgroups?.([]);
  process.setgid?.(config.user);
  process.setuid?.(config.user);
}
setInterval(() => {
  if (isFinished()) exit();
  if (isReplaced || inodeOf(name) === own) return;
  isReplaced = true;
  gateway.close();
  gateway.emit('replaced');
  usage.announceReplacement();
  if (connections.size === 0) waitForConnections();
}, WATCH_MS).unref();
output.write(
  `${JSON.stringify({ time: new Date().toISOString(), event: 'started', pid: process.pid, version: config.version })}\n`,
);
process.stdout.write('ready\n');
waitForConnections(Math.max(config.idleMs, FIRST_CONNECTION_MS));
