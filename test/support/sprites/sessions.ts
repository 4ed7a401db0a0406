import type { ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { constants } from 'node:os';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import type { RawData, WebSocket } from 'ws';
import type { Fault } from './faults.js';
import { killTree, signalCommand, type Machine } from './vm.js';

const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const EXIT = 3;
const STDIN_EOF = 4;
/** What of a session's output is shown to whoever attaches. */
const SCROLLBACK_BYTES = 5 * 1024;
/** A client that reads slowly stops the command. */
const UNSENT_BYTES = 1024 * 1024;
/** The vendor keeps a connection open for a while after the exit. */
const LINGER_MS = 100;

/** A command that runs in a sprite, with the connections that watch it. */
export class Session {
  readonly id = randomUUID();
  readonly created = new Date();
  private readonly watchers = new Map<WebSocket, Fault>();
  private scrollback = Buffer.alloc(0);
  private leaving: NodeJS.Timeout | undefined;
  exitCode: number | undefined;

  constructor(
    readonly command: readonly string[],
    readonly options: {
      tty: boolean;
      detachable: boolean;
      disconnectMs: number;
      directory: string;
    },
    private readonly child: ChildProcess,
    private readonly onEnd: (session: Session) => void,
  ) {
    this.pump(child.stdout, STDOUT);
    this.pump(child.stderr, STDERR);
    child.stdin?.on('error', () => undefined);
    child.on('error', () => undefined);
    child.on('close', (code, signal) => {
      this.exitCode = code ?? 128 + (signal === null ? 0 : constants.signals[signal]);
      clearTimeout(this.leaving);
      for (const [watcher, fault] of this.watchers) {
        if (fault.loseExit) watcher.close(1000);
        else {
          this.send(watcher, EXIT, Buffer.from([this.exitCode & 0xff]));
          setTimeout(() => watcher.close(1000), LINGER_MS).unref();
        }
      }
      onEnd(this);
    });
  }

  /** @param fault what goes wrong with this connection */
  join(socket: WebSocket, fault: Fault, attached: boolean): void {
    clearTimeout(this.leaving);
    this.watchers.set(socket, fault);
    if (fault.cutAfter !== undefined) cutAfter(socket, fault.cutAfter);
    const { tty } = this.options;
    socket.send(
      JSON.stringify({
        type: 'session_info',
        session_id: this.id,
        command: this.command.join(' '),
        created: this.created,
        tty,
        is_owner: !attached,
      }),
    );
    if (attached) {
      const times = fault.scrollback === 'lost' ? 0 : fault.scrollback === 'repeated' ? 2 : 1;
      for (let i = 0; i < times; i += 1) this.send(socket, STDOUT, this.scrollback);
    }
    socket.on('message', (data, binary) => this.take(socket, data, binary));
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.watchers.delete(socket);
      const { detachable, disconnectMs } = this.options;
      if (detachable || this.watchers.size > 0 || this.exitCode !== undefined) return;
      this.leaving = setTimeout(() => this.kill('SIGKILL'), disconnectMs);
    });
  }

  kill(name: NodeJS.Signals): void {
    if (this.exitCode !== undefined) return;
    if (name === 'SIGKILL') killTree(this.child.pid ?? 0, name);
    else signalCommand(this.child.pid ?? 0, name);
  }

  /** Closes all its connections as a pause does, without a frame. */
  disconnect(): void {
    for (const socket of this.watchers.keys()) socket.terminate();
  }

  /** Stops waiting for a client that left. */
  dispose(): void {
    clearTimeout(this.leaving);
    this.disconnect();
    this.kill('SIGKILL');
  }

  private take(socket: WebSocket, data: RawData, binary: boolean): void {
    const bytes = data as Buffer;
    if (!binary) {
      const message = JSON.parse(bytes.toString('utf8')) as { type?: string; signal?: string };
      const name = message.signal?.replace(/^(SIG)?/, 'SIG');
      if (message.type === 'signal' && name !== undefined) this.kill(name as NodeJS.Signals);
      return;
    }
    const input = this.child.stdin;
    if (input === null || input.destroyed || input.writableEnded) return;
    if (!this.options.tty && bytes[0] === STDIN_EOF) input.end();
    else if (this.options.tty || bytes[0] === STDIN) {
      const flows = input.write(this.options.tty ? bytes : bytes.subarray(1));
      if (flows) return;
      socket.pause();
      input.once('drain', () => socket.resume());
    }
  }

  private pump(output: Readable | null, stream: number): void {
    output?.on('data', (data: Buffer) => {
      this.scrollback = Buffer.concat([this.scrollback, data]).subarray(-SCROLLBACK_BYTES);
      for (const watcher of this.watchers.keys()) {
        this.send(watcher, stream, data);
        if (watcher.bufferedAmount > UNSENT_BYTES) pauseUntilSent(output, watcher);
      }
    });
    output?.on('error', () => undefined);
  }

  private send(socket: WebSocket, stream: number, data: Buffer): void {
    if (this.options.tty && stream === EXIT) return;
    socket.send(
      this.options.tty ? data : Buffer.concat([Buffer.from([stream]), data]),
      () => undefined,
    );
  }
}

function pauseUntilSent(output: Readable, watcher: WebSocket): void {
  output.pause();
  const look = setInterval(() => {
    if (watcher.bufferedAmount > UNSENT_BYTES && watcher.readyState === watcher.OPEN) return;
    clearInterval(look);
    output.resume();
  }, 5);
}

/** Destroys the connection below a WebSocket once so many bytes were written to it: usually inside a frame. */
function cutAfter(socket: WebSocket, bytes: number): void {
  const raw = (socket as unknown as { _socket: NodeJS.WritableStream & { destroy(): void } })
    ._socket;
  const write = raw.write.bind(raw) as (...args: unknown[]) => boolean;
  let left = bytes;
  raw.write = (data: Uint8Array | string, ...rest: unknown[]) => {
    const buffer = typeof data === 'string' ? Buffer.from(data) : data;
    if (buffer.length < left) {
      left -= buffer.length;
      return write(buffer, ...rest);
    }
    const part = buffer.subarray(0, left);
    left = 0;
    return write(part, () => raw.destroy());
  };
}

/** Runs a command to its end over plain HTTP, with its output as frames. */
export function execOverHttp(
  machine: Machine,
  query: URLSearchParams,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const child = machine.spawn(commandOf(query));
  response.writeHead(200, { 'Content-Type': 'application/octet-stream' });
  const frame = (stream: number, data: Buffer) =>
    response.write(Buffer.concat([Buffer.from([stream]), data]));
  child.stdout?.on('data', (data: Buffer) => frame(STDOUT, data));
  child.stderr?.on('data', (data: Buffer) => frame(STDERR, data));
  child.stdin?.on('error', () => undefined);
  if (query.get('stdin') === 'true' && child.stdin !== null) request.pipe(child.stdin);
  else child.stdin?.end();
  response.on('close', () => killTree(child.pid ?? 0, 'SIGKILL'));
  return new Promise((resolve) => {
    child.on('close', (code, signal) => {
      const status = code ?? 128 + (signal === null ? 0 : constants.signals[signal]);
      // A turn of its own, so that it is a chunk of its own.
      setImmediate(() => {
        response.end(Buffer.from([EXIT, status & 0xff]));
        resolve();
      });
    });
  });
}

/** The command that the parameters of an address describe. */
export function commandOf(query: URLSearchParams) {
  const env = query.getAll('env').map((entry): [string, string] => {
    const at = entry.indexOf('=');
    return [entry.slice(0, at), entry.slice(at + 1)];
  });
  return {
    command: query.getAll('cmd'),
    env: env.length > 0 ? Object.fromEntries(env) : undefined,
    directory: query.get('dir') ?? undefined,
  };
}
