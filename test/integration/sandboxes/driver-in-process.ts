import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { viewArguments, type View } from '../../../src/sandboxes/driver/local/bwrap-arguments.js';
import { becomeUser, confineProgram } from '../../../src/supervisor/confine.js';
import { findProgram } from '../../../src/sandboxes/driver/local/host.js';
import { packageRoot } from '../../../src/common/package-root.js';
import { LocalSandboxDriver } from '../../../src/sandboxes/driver/local/local-sandbox-driver.js';
import type { LocalSandboxOptions } from '../../../src/sandboxes/driver/local/options.js';
import type { SandboxDriver, SpoolEvent } from '../../../src/sandboxes/driver/sandbox-driver.js';
import type { Item } from '../../../src/supervisor/protocol/frames.js';
import { SandboxError, type SandboxErrorKind } from '../../../src/supervisor/sandbox-error.js';

const HOST_SCRIPT = fileURLToPath(new URL('driver-host.mjs', import.meta.url));
const DRIVER = 'dist/src/sandboxes/driver/local/local-sandbox-driver.js';

interface Answer {
  id?: number;
  ready?: true;
  result?: unknown;
  error?: { name?: string; kind?: SandboxErrorKind; message: string };
}

type Call = { signal?: AbortSignal } & Record<string, unknown>;

/** A driver that runs in another process of this machine, possibly as another user; ends with `stop` or `kill -9`. */
export class DriverProcess {
  private readonly waiting = new Map<number, (answer: Answer) => void>();
  private lastId = 0;

  private constructor(
    private readonly child: ChildProcess,
    /** Answers what needs no process: paths. */
    private readonly local: SandboxDriver,
  ) {
    child.on('message', (message) => {
      const answer = message as Answer;
      if (answer.id === undefined) return;
      this.waiting.get(answer.id)?.(answer);
      this.waiting.delete(answer.id);
    });
    child.on('exit', () => {
      for (const settle of this.waiting.values()) {
        settle({ error: { message: 'the process of the driver has ended' } });
      }
      this.waiting.clear();
    });
  }

  /**
   * @param uid run as this user, by way of a view like the driver's own (the repository may lie where that user cannot
   * go); its state is then at `/mnt/sandbox` for it
   * @param inherited a file that it finds open, as some process managers leave them
   */
  static async start(
    options: LocalSandboxOptions,
    uid: number | null,
    inherited: string | null = null,
  ): Promise<DriverProcess> {
    const app = packageRoot();
    const origin: View = {
      node: process.execPath,
      app,
      sandbox: options.stateDir,
      etc: join(app, 'test'),
      tools: null,
      programs: null,
      gateway: null,
    };
    const view: View = {
      node: '/mnt/node',
      app: '/mnt/app',
      sandbox: '/mnt/sandbox',
      etc: '/mnt/test',
      tools: null,
      programs: null,
      gateway: null,
    };
    const here = uid === null ? origin : view;
    const script =
      uid === null ? HOST_SCRIPT : join('/mnt/test', HOST_SCRIPT.slice(join(app, 'test').length));
    const prefix =
      uid === null
        ? []
        : [
            findProgram('bwrap') ?? 'bwrap',
            ...viewArguments(origin, view, '/mnt'),
            '--',
            ...becomeUser(confineProgram(view.app), uid),
          ];
    const hosted = JSON.stringify({ ...options, stateDir: here.sandbox, nodePath: here.node });
    const leak =
      inherited === null
        ? []
        : ['/bin/bash', '-c', 'exec 251<"$1"; shift; exec "$@"', 'bash', inherited];
    const [program = '', ...args] = leak.concat(
      prefix,
      here.node,
      script,
      join(here.app, DRIVER),
      hosted,
    );
    const child = spawn(program, args, {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      serialization: 'advanced',
    });
    await new Promise<void>((resolve, reject) => {
      child.once('message', () => resolve());
      child.once('exit', () => reject(new Error('the process of the driver did not start')));
    });
    const local = new LocalSandboxDriver({ ...options, stateDir: here.sandbox });
    return new DriverProcess(child, local);
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  /** The driver in that process, call by call. */
  get driver(): SandboxDriver {
    const call = (method: string) => (options: Call) => this.call(method, options);
    return {
      name: 'local',
      layout: (sandboxId) => this.local.layout(sandboxId),
      preflight: call('preflight') as SandboxDriver['preflight'],
      limits: call('limits') as SandboxDriver['limits'],
      create: call('create') as unknown as SandboxDriver['create'],
      packageHosts: call('packageHosts') as unknown as SandboxDriver['packageHosts'],
      restrictNetwork: call('restrictNetwork') as unknown as SandboxDriver['restrictNetwork'],
      providePrograms: call('providePrograms') as unknown as SandboxDriver['providePrograms'],
      gateway: () => this.local.gateway(),
      writeFiles: call('writeFiles') as unknown as SandboxDriver['writeFiles'],
      runScript: call('runScript') as unknown as SandboxDriver['runScript'],
      files: (options) => this.files(options),
      launch: call('launch') as unknown as SandboxDriver['launch'],
      follow: (options) => this.follow({ ...options }),
      kill: call('kill') as unknown as SandboxDriver['kill'],
      discardSpool: call('discardSpool') as unknown as SandboxDriver['discardSpool'],
      exists: call('exists') as unknown as SandboxDriver['exists'],
      destroy: call('destroy') as unknown as SandboxDriver['destroy'],
      list: call('list') as unknown as SandboxDriver['list'],
      close: () => Promise.resolve(),
    };
  }

  /** As the kernel's out-of-memory killer would. */
  async stop(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = new Promise((resolve) => void this.child.once('exit', resolve));
    // bubblewrap stays as the parent; the driver itself ends when its channel does.
    this.child.kill(signal);
    if (this.child.connected) this.child.disconnect();
    await gone;
  }

  private async call(method: string, { signal, ...options }: Call): Promise<unknown> {
    const id = (this.lastId += 1);
    const abort = (): void =>
      void this.child.send({ id: (this.lastId += 1), method: 'abort', of: id });
    signal?.addEventListener('abort', abort);
    try {
      return await this.exchange({ id, method, options, aborted: signal?.aborted }, id);
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  private async exchange(message: object, id: number): Promise<unknown> {
    const { error, result } = await new Promise<Answer>((resolve) => {
      this.waiting.set(id, resolve);
      if (this.child.connected) this.child.send(message);
      else resolve({ error: { message: 'the process of the driver has ended' } });
    });
    if (error === undefined) return result;
    throw error.kind === undefined
      ? new Error(error.message)
      : new SandboxError(error.kind, error.message);
  }

  private async *follow(options: Call): AsyncGenerator<SpoolEvent, void, undefined> {
    for await (const event of this.iterate<SpoolEvent>('follow', options)) {
      yield event.kind === 'chunk' ? { ...event, data: Buffer.from(event.data) } : event;
    }
  }

  private async *files({
    input,
    ...options
  }: Parameters<SandboxDriver['files']>[0]): AsyncGenerator<Item, void, undefined> {
    const items = this.iterate<Item>('files', { ...options }, async (of) => {
      const send = (data: Buffer | null) => {
        const id = (this.lastId += 1);
        return this.exchange({ id, method: 'input', of, data }, id);
      };
      for await (const data of input) await send(data);
      await send(null);
    });
    for await (const { header, bytes } of items) yield { header, bytes: Buffer.from(bytes) };
  }

  /** @param begun is called when the other process has the call of this number */
  private async *iterate<Value>(
    method: string,
    { signal, ...options }: Call,
    begun: (of: number) => Promise<void> = async () => undefined,
  ): AsyncGenerator<Value, void, undefined> {
    const of = (this.lastId += 1);
    await this.exchange({ id: of, method, options }, of);
    // If the input fails, so does the call.
    begun(of).catch(() => {
      if (this.child.connected) this.child.send({ id: (this.lastId += 1), method: 'abort', of });
    });
    const abort = (): void => void this.child.send({ id: (this.lastId += 1), method: 'abort', of });
    signal?.addEventListener('abort', abort);
    const step = async (to: 'next' | 'return') => {
      const id = (this.lastId += 1);
      return (await this.exchange({ id, method: to, of }, id)) as IteratorResult<Value, void>;
    };
    try {
      for (;;) {
        const { done, value } = await step('next');
        if (done === true || value === undefined) return;
        yield value;
      }
    } finally {
      signal?.removeEventListener('abort', abort);
      if (this.child.connected) await step('return').catch(() => undefined);
    }
  }
}
