import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { request } from 'node:http';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { gatewayAt } from '../../../src/gateway/client.js';
import { type GrantContent, GrantSeal } from '../../../src/gateway/grants.js';
import type { NetworkGateway as Link } from '../../../src/gateway/network/dial-gateway.js';
import { RemoteGateway } from '../../../src/gateway/network/remote-gateway.js';
import { GRANT_KEYS, KeyRing } from '../../../src/secrets/key-ring.js';
import { ENCRYPTION_KEYS } from '../../support/service.js';
import type { Answer } from './own-gateway.js';

const LISTENING = /Listening on https?:\/\/[\d.]+:(\d+)/;

/** A process with `APP_ROLE=gateway`. */
export class NetworkGatewayProcess {
  private child: ChildProcess | undefined;
  private output = '';
  port = 0;

  private constructor(
    private readonly dataDir: string,
    private env: Record<string, string | undefined>,
  ) {}

  /** @param env added to its environment */
  static async start(env: Record<string, string | undefined> = {}): Promise<NetworkGatewayProcess> {
    const dataDir = await mkdtemp(join(tmpdir(), 'network-gateway-'));
    const gateway = new NetworkGatewayProcess(dataDir, env);
    await gateway.run();
    return gateway;
  }

  static get seal(): GrantSeal {
    return new GrantSeal(KeyRing.parse(ENCRYPTION_KEYS).derive(GRANT_KEYS));
  }

  get url(): string {
    return `${this.env['GATEWAY_CERT_FILE'] === undefined ? 'http' : 'https'}://127.0.0.1:${this.port}`;
  }

  get logs(): string {
    return this.output;
  }

  /** As a driver sees it. @param host where sandboxes reach this machine */
  remote(certificates?: readonly string[], host = '127.0.0.1'): RemoteGateway {
    const grantKeys = KeyRing.parse(ENCRYPTION_KEYS).derive(GRANT_KEYS);
    const url = this.url.replace('127.0.0.1', host);
    return new RemoteGateway({ url, grantKeys, certificates });
  }

  /** Starts it, at the same port as before if it was started already. */
  async run(): Promise<void> {
    const child = spawn(process.execPath, ['--enable-source-maps', 'dist/src/main.js'], {
      env: {
        ...process.env,
        NODE_OPTIONS: undefined,
        NODE_ENV: undefined,
        DATABASE_URL: undefined,
        APP_ROLE: 'gateway',
        DATA_DIR: this.dataDir,
        HOST: '127.0.0.1',
        GATEWAY_PORT: String(this.port),
        ENCRYPTION_KEYS,
        ...this.env,
      },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    this.child = child;
    child.stderr?.on('data', (data: Buffer) => (this.output += data.toString()));
    const lines = createInterface({ input: child.stdout ?? process.stdin });
    await new Promise<void>((resolve, reject) => {
      lines.on('line', (line) => {
        this.output += `${line}\n`;
        const port = LISTENING.exec(line)?.[1];
        if (port === undefined) return;
        this.port = Number(port);
        resolve();
      });
      child.once('close', () => reject(new Error(`the gateway ended: ${this.output}`)));
    });
  }

  /** Ends it at once and starts it with other settings, at the same port. @param env added to its environment */
  async restart(env: Record<string, string | undefined>): Promise<void> {
    this.signal('SIGKILL');
    await this.ended();
    this.env = { ...this.env, ...env };
    await this.run();
  }

  signal(name: NodeJS.Signals): void {
    this.child?.kill(name);
  }

  /** @returns the exit code */
  async ended(): Promise<number | null> {
    const { child } = this;
    if (child === undefined) return null;
    if (child.exitCode === null && child.signalCode === null) await once(child, 'close');
    return child.exitCode;
  }

  async stop(): Promise<void> {
    this.signal('SIGKILL');
    await this.ended();
    await rm(this.dataDir, { recursive: true, force: true });
  }
}

/** A grant of these keys. */
export function networkGrant(content: GrantContent, sandbox: string): string {
  return NetworkGatewayProcess.seal.seal({
    sandbox,
    session: 'a-session',
    turn: 'a-turn',
    user: 'a-user',
    expires: Date.now() + 60_000,
    ...content,
  });
}

/** Sends a request to the broker as a relay does. @param claimed the sandbox that the relay says it has */
export async function sendOver(
  link: Link,
  path: string,
  headers: Record<string, string>,
  claimed = 'whatever',
  onData: (text: string) => void = () => undefined,
): Promise<Answer> {
  const socket = await gatewayAt(link).broker(claimed, AbortSignal.timeout(30_000));
  return new Promise((resolve, reject) => {
    const sent = request({
      method: 'POST',
      path,
      headers: { host: '127.0.0.1', ...headers },
      createConnection: () => socket,
    });
    sent.once('error', reject);
    sent.once('response', (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        onData(chunk.toString());
      });
      response.once('error', reject);
      response.once('end', () => {
        socket.destroy();
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          text: Buffer.concat(chunks).toString(),
        });
      });
    });
    sent.end('{}');
    socket.resume();
  });
}
