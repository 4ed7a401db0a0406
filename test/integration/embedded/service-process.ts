import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { dirname, join } from 'node:path';
import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';
import { findServer } from '../../../src/database/embedded/server-processes.js';

const HERE = dirname(fileURLToPath(import.meta.url));
const REPOSITORY = join(HERE, '..', '..', '..');

export interface Message {
  ready?: boolean;
  stopping?: boolean;
  url?: string | null;
  log?: string;
  error?: string;
}

/** Turns the plain command into the one to run: another user, a small disk. */
export type Wrapper = (command: string[]) => string[];

/** A process that has a data folder, its messages read one at a time. */
export class ServiceProcess {
  private static readonly alive = new Set<ChildProcess>();
  private readonly messages: AsyncIterator<string>;
  private readonly exited: Promise<unknown>;

  private constructor(private readonly child: ChildProcess) {
    this.exited = once(child, 'exit');
    ServiceProcess.alive.add(child);
    child.once('exit', () => ServiceProcess.alive.delete(child));
    if (child.stdout === null) throw new Error('no standard output');
    this.messages = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  }

  static run(task: string, dataDir: string, wrap: Wrapper = (command) => command): ServiceProcess {
    const [file = '', ...args] = wrap([
      process.execPath,
      join(HERE, 'service-process.fixture.mjs'),
      join(REPOSITORY, 'dist'),
      dataDir,
      task,
    ]);
    const stdio: ['ignore', 'pipe', 'inherit'] = ['ignore', 'pipe', 'inherit'];
    return new ServiceProcess(spawn(file, args, { stdio, env: { PATH: process.env.PATH } }));
  }

  get pid(): number {
    if (this.child.pid === undefined) throw new Error('the process did not start');
    return this.child.pid;
  }

  /** The next message that is not a log line. */
  async next(): Promise<Message> {
    for (;;) {
      const { value, done } = await this.messages.next();
      if (done === true) throw new Error('the process ended without a message');
      const message = JSON.parse(value) as Message;
      if (message.log === undefined) return message;
    }
  }

  async signal(signal: NodeJS.Signals): Promise<void> {
    this.child.kill(signal);
  }

  /** Ends what a failed test left running. */
  static async endAll(): Promise<void> {
    const left = [...ServiceProcess.alive];
    const ends = left.map((child) => once(child, 'exit'));
    for (const child of left) child.kill('SIGKILL');
    await Promise.all(ends);
  }

  /** Signals and waits for the end. */
  async end(signal: NodeJS.Signals): Promise<void> {
    this.child.kill(signal);
    await this.exited;
  }
}

/** Runs a body on a data folder of its own and leaves neither the folder nor a server behind. */
export async function withDataDir(body: (dataDir: string) => Promise<void>): Promise<void> {
  const dataDir = await mkdtemp(join(tmpdir(), 'embedded-'));
  try {
    await body(dataDir);
  } finally {
    await ServiceProcess.endAll();
    for (const pid of serversOn(dataDir)) kill9(pid);
    await rm(dataDir, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 });
  }
}

/** The postmasters on a data folder, as the operating system lists them. */
export function serversOn(dataDir: string): number[] {
  try {
    return findServer(join(dataDir, 'postgres')).postmasters;
  } catch {
    return [];
  }
}

/** Waits until `condition` holds, for at most two minutes. */
export async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 120_000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error('waited two minutes in vain');
    await new Promise((resolve) => {
      setTimeout(resolve, 10);
    });
  }
}

/** What serves a connection ends by itself when that is closed, and may be gone by now. */
export function kill9(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
