import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { type Service, startService } from './service.js';
import { createTestDatabase } from './test-database.js';

const MESSAGE = { query: 0x51, parse: 0x50, bind: 0x42 };
const TYPE_BYTES = 1;
const LENGTH_BYTES = 4;

/** A service together with the statements that it has sent to its database. */
export interface LoggedService extends Service {
  /** The statements' texts, in the order in which they were sent. A test may empty it. */
  readonly statements: string[];
}

/**
 * Starts a service whose database is behind a {@link StatementLog}. It has no worker, which would send statements of its
 * own between those of the requests.
 */
export async function startLoggedService(env: Record<string, string> = {}): Promise<LoggedService> {
  const database = await createTestDatabase();
  const log = await StatementLog.start(database.url);
  const service = await startService({
    databaseUrl: log.url,
    env: { APP_ROLE: 'api', ...env },
  });
  return {
    ...service,
    statements: log.statements,
    stop: async () => {
      await service.stop();
      await log.close();
      await database.drop();
    },
  };
}

/** A proxy in front of PostgreSQL's socket that records every statement that passes, regardless of the library. */
class StatementLog {
  /** The statements' texts, in the order in which they were sent. */
  readonly statements: string[] = [];
  private readonly server: Server;
  private readonly databaseUrl: URL;
  private readonly sockets = new Set<Socket>();

  private constructor(server: Server, databaseUrl: URL) {
    this.server = server;
    this.databaseUrl = databaseUrl;
    server.on('connection', (client) => this.accept(client));
  }

  static async start(databaseUrl: string): Promise<StatementLog> {
    const server = createServer({ noDelay: true });
    const log = new StatementLog(server, new URL(databaseUrl));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return log;
  }

  /** The same database, by way of this proxy. */
  get url(): string {
    const url = new URL(this.databaseUrl);
    url.searchParams.delete('host');
    url.hostname = '127.0.0.1';
    url.port = String((this.server.address() as AddressInfo).port);
    return url.href;
  }

  async close(): Promise<void> {
    this.server.close();
    for (const socket of this.sockets) socket.destroy();
    await once(this.server, 'close');
  }

  private accept(client: Socket): void {
    const { searchParams, hostname, port } = this.databaseUrl;
    const folder = searchParams.get('host');
    const upstream = folder?.startsWith('/')
      ? connect(`${folder}/.s.PGSQL.${port || '5432'}`)
      : connect(Number(port || '5432'), hostname);
    const reader = new ClientMessages((text) => this.statements.push(text));
    client.on('data', (data: Buffer) => reader.take(data));
    client.pipe(upstream).pipe(client);
    for (const socket of [client, upstream]) {
      this.sockets.add(socket);
      socket.on('error', () => undefined);
      socket.once('close', () => {
        this.sockets.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
  }
}

/** Finds the statements in what one client sends: as text, or bound by the name under which it was prepared. */
class ClientMessages {
  private rest = Buffer.alloc(0);
  /** The first message has no type. */
  private started = false;
  private readonly prepared = new Map<string, string>();
  private readonly onStatement: (text: string) => void;

  constructor(onStatement: (text: string) => void) {
    this.onStatement = onStatement;
  }

  take(data: Buffer): void {
    this.rest = Buffer.concat([this.rest, data]);
    for (;;) {
      const lengthAt = this.started ? TYPE_BYTES : 0;
      if (this.rest.length < lengthAt + LENGTH_BYTES) return;
      const end = lengthAt + this.rest.readUInt32BE(lengthAt);
      if (this.rest.length < end) return;
      if (this.started) this.read(this.rest[0], this.rest.subarray(TYPE_BYTES + LENGTH_BYTES, end));
      this.started = true;
      this.rest = this.rest.subarray(end);
    }
  }

  private read(type: number | undefined, body: Buffer): void {
    const [first = '', second = ''] = body.toString('latin1').split('\0');
    if (type === MESSAGE.query) this.onStatement(first);
    if (type === MESSAGE.parse) this.prepared.set(first, second);
    // The first name is the portal's.
    if (type === MESSAGE.bind) this.onStatement(this.prepared.get(second) ?? second);
  }
}
