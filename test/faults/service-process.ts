import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, mkdirSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { ask } from './http.js';
import { PostgresProxy } from './postgres-proxy.js';

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const READY_LIMIT_MS = 120_000;
const STOP_LIMIT_MS = 90_000;

export type Role = 'api' | 'worker' | 'all';

const METRICS_URL = /Metrics on (http:[^\s"]+)/;

/** One place for a process of the service: stopped and started again, it keeps its port and its way to the database. */
export class ServiceProcess {
  readonly name: string;
  readonly role: Role;
  readonly proxy: PostgresProxy;
  readonly port: number;
  private readonly env: Record<string, string | undefined>;
  private readonly logPath: string;
  private child: ChildProcess | undefined;
  /** The folder of the build that it starts next. */
  project: string = ROOT;
  /** Stopped by SIGSTOP. */
  frozen = false;
  /** The last 64 KiB. */
  output = '';
  /** Where it serves its metrics since its last start. */
  metricsUrl = '';

  private constructor(options: {
    name: string;
    role: Role;
    proxy: PostgresProxy;
    port: number;
    env: Record<string, string | undefined>;
    logPath: string;
  }) {
    this.name = options.name;
    this.role = options.role;
    this.proxy = options.proxy;
    this.port = options.port;
    this.env = options.env;
    this.logPath = options.logPath;
  }

  static async prepare(options: {
    name: string;
    role: Role;
    socketPath: string;
    databaseUrl: (port: number) => string;
    env: Record<string, string | undefined>;
    logDir: string;
  }): Promise<ServiceProcess> {
    const { name, role, logDir } = options;
    mkdirSync(logDir, { recursive: true });
    const proxy = await PostgresProxy.start(options.socketPath);
    const port = await freePort();
    return new ServiceProcess({
      name,
      role,
      proxy,
      port,
      logPath: join(logDir, `${name}.log`),
      env: {
        ...options.env,
        PORT: String(port),
        APP_ROLE: role,
        DATABASE_URL: options.databaseUrl(proxy.port),
      },
    });
  }

  get pid(): number | undefined {
    return this.child?.pid;
  }

  get running(): boolean {
    return this.child !== undefined;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Starts it if it does not run; does not wait until it is ready. */
  spawn(): void {
    if (this.child) return;
    this.frozen = false;
    const child = spawn(process.execPath, ['--enable-source-maps', 'dist/src/main.js'], {
      cwd: this.project,
      env: { ...process.env, NODE_OPTIONS: undefined, NODE_ENV: undefined, ...this.env },
      // Over the channel it learns of the end of this process, however that comes.
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    const log = createWriteStream(this.logPath, { flags: 'a' });
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.output = (this.output + text).slice(-65_536);
        this.metricsUrl = METRICS_URL.exec(text)?.[1] ?? this.metricsUrl;
        log.write(text);
      });
    }
    child.once('close', () => {
      log.end();
      if (this.child === child) this.child = undefined;
    });
    this.child = child;
  }

  /** @returns whether it came to be ready; false when it ended first. */
  async ready(limitMs = READY_LIMIT_MS): Promise<boolean> {
    const giveUpAt = Date.now() + limitMs;
    while (this.child && Date.now() < giveUpAt) {
      if (await this.isReady()) return true;
      await delay(25);
    }
    return false;
  }

  async isReady(): Promise<boolean> {
    const answer = await ask(`${this.url}/readyz`, { timeoutMs: 2_000 }).catch(() => undefined);
    return answer?.status === 200;
  }

  signal(name: NodeJS.Signals): void {
    if (!this.child) return;
    if (name === 'SIGSTOP') this.frozen = true;
    if (name === 'SIGCONT') this.frozen = false;
    this.child.kill(name);
  }

  async ended(): Promise<void> {
    const { child } = this;
    if (child) await once(child, 'close');
  }

  async kill9(): Promise<void> {
    const ended = this.ended();
    this.signal('SIGKILL');
    await ended;
  }

  /** SIGTERM. @returns how long it took, in milliseconds. @throws Error when it had to be killed, or complained. */
  async stop(): Promise<number> {
    const { child } = this;
    if (!child) return 0;
    if (this.frozen) this.signal('SIGCONT');
    const begun = performance.now();
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_LIMIT_MS);
    const ended = once(child, 'close') as Promise<[number | null, string | null]>;
    child.kill('SIGTERM');
    const [code, signal] = await ended;
    clearTimeout(timer);
    if (signal !== null) throw new Error(`${this.name} did not stop in time (${signal})`);
    this.exitCode = code;
    return performance.now() - begun;
  }

  exitCode: number | null = null;

  /** Whatever state it is in: it ends, and with it its proxy. */
  async dispose(): Promise<void> {
    if (this.child) {
      if (this.frozen) this.signal('SIGCONT');
      await this.stop().catch(() => undefined);
    }
    await this.proxy.close();
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
