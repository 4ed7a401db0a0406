/**
 * Starts programs in the agent's container of a pod on behalf of the supervisor, which is in another container. Connects
 * to the supervisor before anything of a tenant runs, and ends with that connection; the container ends with this
 * program. Its one argument is a {@link ShimSetup} as JSON.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { confine } from '../confine.js';
import { diskUsage } from '../limits/disk-usage.js';
import { descendants, killAll, processesOfUser } from '../processes.js';
import { type CallHandler, serveCalls } from '../protocol/call-server.js';
import type { Item } from '../protocol/frames.js';
import { EventQueue } from './event-queue.js';
import type { PipedProgram, ShimRequest, ShimSetup } from './shim-calls.js';
import { ShimLaunch } from './shim-launch.js';

const RETRY_MS = 20;
const NOTHING = Buffer.alloc(0);

const setup = JSON.parse(process.argv[2] ?? '') as ShimSetup;
const launches = new Map<string, ShimLaunch>();
process.umask(0o022);

/**
 * Ends processes that an ended launch has left. Those of other launches and programs are below this process; orphans are
 * below the first process of the container.
 */
function sweep(): void {
  const uid = process.getuid?.() ?? 0;
  killAll(() => {
    const others = new Set([1, ...descendants(process.pid)]);
    return processesOfUser(uid).filter((pid) => !others.has(pid));
  });
}

async function readAll(input: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of input) pieces.push(piece);
  return Buffer.concat(pieces);
}

const handlers: Record<string, CallHandler> = {
  async *run({ input }) {
    const request = JSON.parse((await readAll(input)).toString('utf8')) as ShimRequest;
    const { launchId } = request;
    const launch = new ShimLaunch(request, setup.pipes, sweep);
    launches.set(launchId, launch);
    try {
      yield* launch.follow();
    } finally {
      launches.delete(launchId);
    }
  },
  async signal({ parameters: { launchId, name } }) {
    const launch = launches.get(String(launchId));
    if (name === 'TERM') launch?.terminate();
    else launch?.destroy();
  },
  async end({ parameters: { launchId } }) {
    await launches.get(String(launchId))?.end();
  },
  async *pipe({ parameters, input, signal }) {
    yield* pipe(parameters as unknown as PipedProgram, input, signal);
  },
  async *room() {
    const { folders, limitBytes } = setup.disk;
    const room = Math.max(0, limitBytes - (await diskUsage(folders, limitBytes)));
    yield { header: { room }, bytes: NOTHING };
  },
};

async function* pipe(
  { how, operands, environment }: PipedProgram,
  input: AsyncIterable<Buffer>,
  signal: AbortSignal,
): AsyncGenerator<Item, void, undefined> {
  const rights = {
    dropCapabilities: true,
    noNewPrivileges: true,
    close: true,
    dieWithParent: true,
  };
  const [file = '', ...args] = [...confine(setup.confine, { ...rights, ...how }), ...operands];
  const child = spawn(file, args, { env: environment, signal, killSignal: 'SIGKILL' });
  const exited = once(child, 'close') as Promise<[number | null]>;
  exited.catch(() => undefined);
  const events = new EventQueue<Item>();
  const pump = async (kind: 'stdout' | 'stderr'): Promise<void> => {
    for await (const bytes of child[kind] as AsyncIterable<Buffer>)
      await events.push({ header: { kind }, bytes });
  };
  const feed = async (): Promise<void> => {
    for await (const data of input) {
      if (!child.stdin.write(data)) await once(child.stdin, 'drain', { signal });
    }
    child.stdin.end();
  };
  child.stdin.on('error', () => undefined);
  // Input that nobody reads is no error: the program may end before.
  feed().catch(() => child.stdin.destroy());
  const done = Promise.all([pump('stdout'), pump('stderr')])
    .then(() => exited)
    .then(([code]) => events.push({ header: { kind: 'exit', code: code ?? 1 }, bytes: NOTHING }));
  done.catch(() => undefined).finally(() => events.close());
  try {
    yield* events.read();
  } finally {
    child.kill('SIGKILL');
  }
}

async function connected(): Promise<Socket> {
  for (;;) {
    const socket = connect({ path: setup.socket, allowHalfOpen: false });
    try {
      await once(socket, 'connect');
      return socket;
    } catch {
      // The supervisor's container is still starting.
      await delay(RETRY_MS);
    }
  }
}

await serveCalls(await connected(), handlers);
process.exit(0);
