import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

interface Pair {
  client: Socket;
  upstream: Socket;
  /** Its answers do not come back any more. */
  deaf: boolean;
  /** How many of the ambush's words were heard on this connection. */
  heard: number;
}

/** How long an answer may take to be given, and swallowed, before the connection breaks. */
const AMBUSH_MS = 300;

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
  private ambush: { words: readonly string[]; struck: () => void } | undefined;

  private constructor(server: Server, socketPath: string) {
    this.server = server;
    this.socketPath = socketPath;
    server.on('connection', (client) => this.accept(client));
  }

  static async start(socketPath: string): Promise<PostgresProxy> {
    const server = createServer({ noDelay: true });
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

  /**
   * Waits for one connection on which all of these words were sent, in this order, and swallows the answer to the last:
   * what was asked for is done, and whoever asked is cut off before it hears so.
   * @returns resolves when it has happened.
   */
  swallowAnswerTo(...words: readonly string[]): Promise<void> {
    for (const pair of this.pairs) pair.heard = 0;
    return new Promise((struck) => {
      this.ambush = { words, struck };
    });
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
    const pair: Pair = { client, upstream, deaf: false, heard: 0 };
    this.pairs.add(pair);
    let forsaken = false;
    const forget = (): void => {
      if (forsaken || client.destroyed) this.pairs.delete(pair);
    };
    client.on('data', (data) => this.listen(pair, data));
    this.pass(client, upstream, () => this.silent);
    this.pass(upstream, client, () => this.silent || this.swallowing || pair.deaf);
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

  private listen(pair: Pair, data: Buffer): void {
    const { ambush } = this;
    if (!ambush) return;
    while (pair.heard < ambush.words.length && data.includes(ambush.words[pair.heard] ?? '')) {
      pair.heard += 1;
    }
    if (pair.heard < ambush.words.length) return;
    this.ambush = undefined;
    pair.deaf = true;
    setTimeout(() => {
      pair.client.resetAndDestroy();
      ambush.struck();
    }, AMBUSH_MS);
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
