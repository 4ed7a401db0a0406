import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';

const TYPE = { parse: 0x50, bind: 0x42, describe: 0x44, execute: 0x45, sync: 0x53 } as const;
const READY_FOR_QUERY = 0x5a;

/** Which statements are refused: by the name or a part of the text, and by what their parameters hold. */
export interface DomainError {
  statement: string;
  /** One of these must be among the parameters. Default: anything will do. */
  about?: readonly string[];
  /** SQLSTATE; default 22P05, which is permanent. */
  code?: string;
}

/**
 * A proxy in front of PostgreSQL's socket that refuses chosen statements as PostgreSQL does: with an error and its
 * SQLSTATE, on a connection that goes on.
 */
export class RefusingDatabase {
  refusals: DomainError[] = [];
  /** How many statements were refused, by {@link DomainError.statement}. */
  readonly refused = new Map<string, number>();
  private readonly sockets = new Set<Socket>();

  private constructor(
    private readonly server: Server,
    private readonly databaseUrl: string,
  ) {
    server.on('connection', (client) => this.accept(client));
  }

  /** @param databaseUrl by a Unix socket, as the test run's own PostgreSQL has it */
  static async start(databaseUrl: string): Promise<RefusingDatabase> {
    const server = createServer({ noDelay: true });
    const proxy = new RefusingDatabase(server, databaseUrl);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return proxy;
  }

  /** The same database, by way of this proxy. */
  get url(): string {
    const url = new URL(this.databaseUrl);
    url.search = '';
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
    const direct = new URL(this.databaseUrl);
    const folder = direct.searchParams.get('host') ?? '';
    const upstream = connect(join(folder, `.s.PGSQL.${direct.port}`));
    const requests = new Messages(false);
    const answers = new Messages(true);
    const texts = new Map<string, string>();
    /** Errors to be told before the server is next ready: one for each statement that it never saw. */
    let error: Buffer | undefined;
    client.on('data', (data: Buffer) => {
      for (const message of requests.take(data)) {
        const [type] = message.typed ? message.bytes : [];
        if (type === TYPE.parse) {
          const [name = '', text = ''] = stringsOf(message.bytes);
          texts.set(name, `${name}\n${text}`);
        }
        if (type === TYPE.bind) {
          const [, name = ''] = stringsOf(message.bytes);
          const refusal = this.refusalOf(texts.get(name) ?? name, message.bytes);
          if (refusal) error = errorOf(refusal.code ?? '22P05');
        }
        const swallowed = type === TYPE.bind || type === TYPE.describe || type === TYPE.execute;
        if (!(error && swallowed)) upstream.write(message.bytes);
      }
    });
    upstream.on('data', (data: Buffer) => {
      for (const message of answers.take(data)) {
        if (error && message.bytes[0] === READY_FOR_QUERY) {
          client.write(error);
          error = undefined;
        }
        client.write(message.bytes);
      }
    });
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      this.sockets.add(socket);
      socket.on('error', () => undefined);
      socket.once('close', () => {
        this.sockets.delete(socket);
        other.destroy();
      });
    }
  }

  private refusalOf(statement: string, bind: Buffer): DomainError | undefined {
    const found = this.refusals.find(
      (refusal) =>
        statement.includes(refusal.statement) &&
        (refusal.about === undefined || refusal.about.some((value) => bind.includes(value))),
    );
    if (found) this.refused.set(found.statement, (this.refused.get(found.statement) ?? 0) + 1);
    return found;
  }
}

/** Cuts a stream into protocol messages. What the client sends first has no type. */
class Messages {
  private rest: Buffer = Buffer.alloc(0);

  constructor(private started: boolean) {}

  take(data: Buffer): { bytes: Buffer; typed: boolean }[] {
    this.rest = Buffer.concat([this.rest, data]);
    const messages: { bytes: Buffer; typed: boolean }[] = [];
    for (;;) {
      const lengthAt = this.started ? 1 : 0;
      if (this.rest.length < lengthAt + 4) return messages;
      const end = lengthAt + this.rest.readUInt32BE(lengthAt);
      if (this.rest.length < end) return messages;
      messages.push({ bytes: this.rest.subarray(0, end), typed: this.started });
      this.started = true;
      this.rest = this.rest.subarray(end);
    }
  }
}

/** The two names, or name and text, that a message begins with. */
function stringsOf(message: Buffer): string[] {
  return message.subarray(5).toString('latin1').split('\0', 2);
}

function errorOf(code: string): Buffer {
  const fields = Buffer.from(
    ['SERROR', 'VERROR', `C${code}`, 'Mrefused by the test', '', ''].join('\0'),
  );
  const header = Buffer.alloc(5);
  header.write('E');
  header.writeUInt32BE(fields.length + 4, 1);
  return Buffer.concat([header, fields]);
}
