import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  closeSync,
  existsSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
} from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { packageRoot } from '../common/package-root.js';
import type { GatewayConfig } from './gateway-config.js';
import type { ExportedMetric } from './broker/broker-stats.js';
import type { EgressAnswer, EgressHold, StatsRequest } from './protocol.js';
import { readLine } from './read-line.js';
import { shortPath } from './socket-path.js';
import { SEGMENT_ENDING, USAGE_FOLDER } from './usage/journal-files.js';

const PROGRAM = 'dist/src/gateway';
const START_MS = 15_000;
const ANSWER_MS = 5_000;
const POLL_MS = 20;
const RESTART_MS = 50;
const MAX_RESTART_MS = 30_000;
/** The gateway writes this log itself. Its standard output is added, for errors that it could not log. */
const LOG = 'log';
const MAX_LOG_BYTES = 16 * 2 ** 20;

export interface GatewayKeeperOptions {
  /** Absolute; made if missing. Holds the socket and the log. */
  folder: string;
  config: Omit<GatewayConfig, 'socket' | 'version' | 'logFile'>;
  logger?: { warn(message: string): void } | undefined;
}

/**
 * Keeps one gateway running on this machine. The gateway is a process of its own that outlives this one. Several
 * processes of an installation share it.
 */
export class GatewayKeeper {
  private held: Socket | undefined;
  private starting: Promise<void> | undefined;
  private isClosed = false;
  /** Only the first start replaces a gateway of another version: two services would otherwise replace each other's. */
  private mayReplace = true;
  private readonly config: GatewayConfig;

  constructor(private readonly options: GatewayKeeperOptions) {
    const { folder, config } = options;
    this.config = {
      ...config,
      socket: join(folder, 'socket'),
      logFile: join(folder, LOG),
      version: versionOf(config),
    };
  }

  /** The folder with the socket, which is called `socket`. */
  get folder(): string {
    return this.options.folder;
  }

  /** Where the gateway listens for sandboxes without a relay. */
  get listen(): GatewayConfig['listen'] {
    return this.config.listen;
  }

  /** Resolves when a gateway is running. @throws Error with the reason if none can be started */
  async ensure(): Promise<void> {
    if (this.held !== undefined) return;
    this.starting ??= this.start().finally(() => (this.starting = undefined));
    await this.starting;
  }

  /**
   * Connects to the gateway, if one is running. Starts one if a killed gateway has left usage behind.
   * @throws Error if there is no connection
   */
  async connect(): Promise<Socket> {
    const socket = connect(shortPath(this.config.socket));
    try {
      await once(socket, 'connect');
      return socket;
    } catch (error) {
      if (this.isClosed || !hasUsage(this.options.folder)) throw error;
      await this.ensure();
      const again = connect(shortPath(this.config.socket));
      await once(again, 'connect');
      return again;
    }
  }

  /** The metrics of the gateway that is running now. @returns nothing if none is running. Does not start one. */
  async metrics(): Promise<readonly ExportedMetric[]> {
    const request: StatsRequest = { stats: true };
    try {
      const socket = connect(shortPath(this.config.socket));
      socket.setTimeout(ANSWER_MS, () => socket.destroy(new Error('no answer in time')));
      socket.write(`${JSON.stringify(request)}\n`);
      const answer = await json(socket);
      // An older gateway does not know the request.
      return Array.isArray(answer) ? (answer as ExportedMetric[]) : [];
    } catch {
      return [];
    }
  }

  /** Stops watching. The gateway goes on as long as sandboxes use it. */
  close(): void {
    this.isClosed = true;
    this.held?.destroy();
    this.held = undefined;
  }

  private async start(): Promise<void> {
    mkdirSync(this.options.folder, { recursive: true });
    const running = await hold(this.config.socket);
    if (running !== undefined) {
      if (running.version === this.config.version || !this.mayReplace)
        return this.watch(running.socket);
      running.socket.destroy();
    }
    await this.spawn();
    this.mayReplace = false;
  }

  private watch(socket: Socket): void {
    this.mayReplace = false;
    this.held = socket;
    if (this.isClosed) return this.close();
    socket.unref();
    socket.once('close', () => {
      if (this.held === socket) this.held = undefined;
      if (!this.isClosed) void this.restart();
    });
  }

  /** Retries until a gateway runs: agents wait for it, and there may be no next turn that would start one. */
  private async restart(): Promise<void> {
    for (let wait = RESTART_MS; ; wait = Math.min(wait * 2, MAX_RESTART_MS)) {
      await delay(wait, undefined, { ref: false });
      if (this.isClosed) return;
      try {
        return await this.ensure();
      } catch (error) {
        this.options.logger?.warn(`The gateway is not running: ${(error as Error).message}`);
      }
    }
  }

  private async spawn(): Promise<void> {
    const { folder } = this.options;
    const log = join(folder, LOG);
    const output = openSync(log, 'a', 0o600);
    if (fstatSync(output).size > MAX_LOG_BYTES) ftruncateSync(output);
    const from = fstatSync(output).size;
    const child = spawn(process.execPath, [join(packageRoot(), PROGRAM, 'main.js')], {
      detached: true,
      cwd: '/',
      env: inheritedEnvironment(),
      stdio: ['pipe', output, output],
    });
    closeSync(output);
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(JSON.stringify(this.config));
    child.unref();
    let ended: string | undefined;
    child.once('error', (error) => (ended = error.message));
    child.once('exit', (code, signal) => (ended = `it ended (${signal ?? String(code)})`));
    const end = performance.now() + START_MS;
    for (;;) {
      const running = await hold(this.config.socket);
      if (running?.version === this.config.version) return this.watch(running.socket);
      running?.socket.destroy();
      if (ended !== undefined || performance.now() > end) {
        const said = lastLine(readFileSync(log, 'utf8').slice(from));
        throw new Error(`the gateway did not start: ${said || (ended ?? 'no answer in time')}`);
      }
      await delay(POLL_MS);
    }
  }
}

/** Whether a gateway has recorded usage that it may not have delivered. */
function hasUsage(folder: string): boolean {
  const usage = join(folder, USAGE_FOLDER);
  return existsSync(usage) && readdirSync(usage).some((name) => name.endsWith(SEGMENT_ENDING));
}

/** Connects and stays connected. @returns `undefined` if no gateway answers */
async function hold(path: string): Promise<{ socket: Socket; version: string } | undefined> {
  const socket = connect(shortPath(path));
  socket.on('error', () => undefined);
  const request: EgressHold = { hold: true };
  socket.write(`${JSON.stringify(request)}\n`);
  try {
    const answer = JSON.parse(await readLine(socket, ANSWER_MS)) as EgressAnswer;
    socket.resume();
    return { socket, version: answer.ok ? (answer.version ?? '') : '' };
  } catch {
    socket.destroy();
    return undefined;
  }
}

/** A name for the program together with its configuration. */
function versionOf(config: object): string {
  const folder = join(packageRoot(), PROGRAM);
  const hash = createHash('sha256').update(JSON.stringify(config));
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' });
  for (const name of files.filter((file) => file.endsWith('.js')).toSorted())
    hash.update(name).update(readFileSync(join(folder, name)));
  return hash.digest('hex').slice(0, 16);
}

/** Node's own settings for certificates and names; nothing else of the service's environment, which has secrets. */
function inheritedEnvironment(): NodeJS.ProcessEnv {
  const names = ['PATH', 'NODE_EXTRA_CA_CERTS', 'SSL_CERT_FILE', 'SSL_CERT_DIR', 'LANG', 'TZ'];
  return Object.fromEntries(names.map((name) => [name, process.env[name]]));
}

function lastLine(text: string): string {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return (lines.find((line) => /^\w*Error\b/.test(line)) ?? lines.at(-1) ?? '').slice(0, 300);
}
