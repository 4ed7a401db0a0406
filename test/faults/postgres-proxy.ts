import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

interface Pair {
  client: Socket;
  upstream: Socket;
}

/**
 * A TCP proxy in front of PostgreSQL's socket that can misbehave in the ways a network does. One for each process, so
 * that a fault can hit one of them alone.
 */
export class PostgresProxy {
  private readonly server: Server;
  private readonly socketPath: string;
  private readonly pairs = new Set<Pair>();
  /** Milliseconds that everything takes longer, in each direction. */
  private delayMs = 0;
  private silent = false;
  private swallowing = false;

  private constructor(server: Server, socketPath: string) {
    this.server = server;
    this.socketPath = socketPath;
    server.on('connection', (client) => this.accept(client));
  }

  static async start(socketPath: string): Promise<PostgresProxy> {
    const server = createServer();
    const proxy = new PostgresProxy(server, socketPath);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return proxy;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  /** Ends all connections politely. */
  cut(): void {
    for (const { client, upstream } of this.pairs) {
      client.end();
      upstream.destroy();
    }
  }

  /** Breaks all connections by a reset. */
  reset(): void {
    for (const { client, upstream } of this.pairs) {
      client.resetAndDestroy();
      upstream.destroy();
    }
  }

  /** From now on everything takes longer. */
  delay(milliseconds: number): void {
    this.delayMs = milliseconds;
  }

  /** From now on nothing passes in either direction, and nobody is told. */
  blackHole(): void {
    this.silent = true;
  }

  /** Requests still reach the server, which carries them out; its answers do not come back. */
  swallowAnswers(): void {
    this.swallowing = true;
  }

  /** Behaves again. What was silent stays dead: its connections are broken, as by a network that forgot them. */
  heal(): void {
    const broken = this.silent || this.swallowing;
    this.delayMs = 0;
    this.silent = false;
    this.swallowing = false;
    if (broken) this.reset();
  }

  /** As {@link heal}, but connections that were silent stay so for good, without a word. */
  healNewOnly(): void {
    for (const pair of this.pairs) {
      pair.upstream.destroy();
      pair.client.removeAllListeners('data');
      pair.client.pause();
    }
    this.delayMs = 0;
    this.silent = false;
    this.swallowing = false;
  }

  async close(): Promise<void> {
    this.server.close();
    for (const { client, upstream } of this.pairs) {
      client.destroy();
      upstream.destroy();
    }
    this.pairs.clear();
    await once(this.server, 'close');
  }

  private accept(client: Socket): void {
    const upstream = connect(this.socketPath);
    const pair = { client, upstream };
    this.pairs.add(pair);
    let forsaken = false;
    const forget = (): void => {
      if (forsaken || client.destroyed) this.pairs.delete(pair);
    };
    this.pass(client, upstream, () => this.silent);
    this.pass(upstream, client, () => this.silent || this.swallowing);
    client.on('error', () => undefined);
    upstream.on('error', () => undefined);
    client.on('close', () => {
      forsaken = true;
      upstream.destroy();
      forget();
    });
    upstream.on('close', () => {
      // A server that is gone says so by the end of its connection; a black hole swallows that, too.
      if (!this.silent && !this.swallowing && !client.isPaused()) client.destroy();
      forget();
    });
  }

  private pass(from: Socket, to: Socket, isLost: () => boolean): void {
    from.on('data', (data: Buffer) => {
      if (isLost()) return;
      if (this.delayMs === 0) {
        this.write(from, to, data);
        return;
      }
      setTimeout(() => {
        if (!isLost()) this.write(from, to, data);
      }, this.delayMs).unref();
    });
  }

  private write(from: Socket, to: Socket, data: Buffer): void {
    if (to.destroyed || to.write(data)) return;
    from.pause();
    to.once('drain', () => from.resume());
  }
}
