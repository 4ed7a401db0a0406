import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Client } from 'pg';
import { ROOT } from './service-process.js';

interface EmbeddedPostgres {
  url: string;
  stop(): Promise<void>;
}

/** PostgreSQL as the product runs it, on a folder of its own; it can be made to crash, and comes back by itself. */
export class Database {
  private readonly server: EmbeddedPostgres;
  private readonly dataDir: string;
  private client: Client | undefined;

  private constructor(server: EmbeddedPostgres, dataDir: string) {
    this.server = server;
    this.dataDir = dataDir;
  }

  static async start(dataDir: string, log: (line: string) => void): Promise<Database> {
    const build = join(ROOT, 'dist/src/database/embedded/embedded-postgres.js');
    const { startEmbeddedPostgres } = (await import(pathToFileURL(build).href)) as {
      startEmbeddedPostgres: (options: object) => Promise<EmbeddedPostgres>;
    };
    // Everything is synchronised as in production: a crash may not lose what was acknowledged.
    return new Database(await startEmbeddedPostgres({ dataDir, log }), dataDir);
  }

  /** Path of the socket that the server listens on. */
  get socketPath(): string {
    const url = new URL(this.server.url);
    return join(url.searchParams.get('host') ?? '', `.s.PGSQL.${url.port}`);
  }

  /** The server's own connection URL. */
  get url(): string {
    return this.server.url;
  }

  /** The connection URL of a proxy on this port. */
  urlBy(port: number): string {
    const url = new URL(this.server.url);
    url.searchParams.delete('host');
    url.hostname = '127.0.0.1';
    url.port = String(port);
    return url.href;
  }

  crash(): void {
    this.signal('SIGKILL');
  }

  /** What an operator's restart does: connections are ended, transactions rolled back. */
  restart(): void {
    this.signal('SIGINT');
  }

  /** A server that is down already, from the blow before, is left to its restart. */
  private signal(signal: NodeJS.Signals): void {
    try {
      const file = readFileSync(join(this.dataDir, 'postgres', 'postmaster.pid'), 'utf8');
      process.kill(Number(file.split('\n')[0]), signal);
    } catch (error) {
      if (!['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    }
  }

  /** Past the proxies; repeated until the server answers. */
  async query<Row extends object>(text: string, values: unknown[] = []): Promise<Row[]> {
    const giveUpAt = Date.now() + 60_000;
    for (;;) {
      try {
        this.client ??= await this.connect();
        return (await this.client.query(text, values)).rows as Row[];
      } catch (error) {
        this.client?.end().catch(() => undefined);
        this.client = undefined;
        if (Date.now() > giveUpAt || /syntax|does not exist|invalid/.test(String(error)))
          throw error;
        await delay(50);
      }
    }
  }

  async stop(): Promise<void> {
    await this.client?.end().catch(() => undefined);
    await this.server.stop();
  }

  private async connect(): Promise<Client> {
    const client = new Client({ connectionString: this.server.url, query_timeout: 10_000 });
    client.on('error', () => {
      if (this.client === client) this.client = undefined;
    });
    await client.connect();
    return client;
  }
}
