import { request, type IncomingHttpHeaders } from 'node:http';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { randomBytes, randomUUID } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { gatewayAt } from '../../../src/gateway/client.js';
import { GatewayKeeper } from '../../../src/gateway/gateway-keeper.js';
import { type Grant, type GrantContent, GrantSeal } from '../../../src/gateway/grants.js';

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
}

export interface Request {
  method?: string;
  headers?: Record<string, string>;
  body?: string | Buffer;
  onData?: (chunk: Buffer) => void;
  /** Disconnects. */
  signal?: AbortSignal;
}

/** Sends a request to the gateway whose socket is in the folder, as a relay does for its sandbox. */
export async function sendToGateway(
  folder: string,
  sandbox: string,
  path: string,
  { method = 'GET', headers = {}, body, onData, signal }: Request = {},
): Promise<Answer> {
  const socket = await gatewayAt(join(folder, 'socket')).broker(
    sandbox,
    AbortSignal.timeout(30_000),
  );
  return new Promise((resolve, reject) => {
    const sent = request({
      method,
      path,
      headers: { host: '127.0.0.1', ...headers },
      createConnection: () => socket,
      ...(signal && { signal }),
    });
    sent.once('error', reject);
    sent.once('response', (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => {
        onData?.(chunk);
        chunks.push(chunk);
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
    sent.end(body);
    // The client has paused it, to lose nothing before somebody reads.
    socket.resume();
  });
}

/** A gateway process of its own, as the service starts it. */
export class OwnGateway {
  readonly sandbox = randomUUID();
  /** The number of requests that were answered. */
  private answered = 0;

  private constructor(
    readonly folder: string,
    readonly keeper: GatewayKeeper,
    readonly seal: GrantSeal,
    private readonly config: ConstructorParameters<typeof GatewayKeeper>[0]['config'],
  ) {}

  /**
   * @param trusted addresses of loopback that it may connect to, as `host:port`
   * @param user whom it becomes; `null`: it stays the same
   * @param grantKeys with which it opens grants
   */
  static async start(
    trusted: readonly string[],
    name = 'gateway',
    user: number | null = null,
    grantKeys: readonly string[] = [randomBytes(32).toString('base64url')],
  ): Promise<OwnGateway> {
    const folder = await mkdtemp(join(tmpdir(), `${name}-`));
    await chmod(folder, 0o755);
    const config = { grantKeys, trusted, idleMs: 200, user };
    const keeper = new GatewayKeeper({ folder, config });
    await keeper.ensure();
    return new OwnGateway(folder, keeper, new GrantSeal(grantKeys), config);
  }

  /** Starts a gateway with another configuration, which takes over. @returns what keeps it running */
  async replace(): Promise<GatewayKeeper> {
    const config = { ...this.config, idleMs: this.config.idleMs + 1 };
    const keeper = new GatewayKeeper({ folder: this.folder, config });
    await keeper.ensure();
    return keeper;
  }

  grant(content: GrantContent, changes: Partial<Grant> = {}): string {
    return this.seal.seal({
      sandbox: this.sandbox,
      session: 'a-session',
      turn: 'a-turn',
      user: 'a-user',
      expires: Date.now() + 60_000,
      ...content,
      ...changes,
    } as Grant);
  }

  /** Sends a request as a relay does for its sandbox. */
  async send(path: string, options: Request & { sandbox?: string } = {}): Promise<Answer> {
    const { sandbox = this.sandbox, ...rest } = options;
    const answer = await sendToGateway(this.folder, sandbox, path, rest);
    this.answered += 1;
    return answer;
  }

  /** The gateway's log, one object for each line. */
  async log(): Promise<Record<string, unknown>[]> {
    const text = await readFile(join(this.folder, 'log'), 'utf8');
    return text
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  }

  /** The requests in the log. */
  async requests(): Promise<Record<string, unknown>[]> {
    return (await this.log()).filter(({ event }) => event === 'request');
  }

  /** Waits until all answered requests are in the log: each is logged when its response has ended. */
  async logged(): Promise<number> {
    for (;;) {
      const { length } = await this.requests();
      if (length >= this.answered) return length;
      await delay(5);
    }
  }

  /** The id of the process that serves now. */
  async pid(): Promise<number> {
    const started = (await this.log()).filter(({ event }) => event === 'started');
    return Number(started.at(-1)?.['pid']);
  }

  async stop(): Promise<void> {
    const pid = await this.pid();
    this.keeper.close();
    while (isAlive(pid)) await delay(20);
    await rm(this.folder, { recursive: true });
  }
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
