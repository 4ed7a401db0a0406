import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { closeSync, constants, openSync, readdirSync, rmSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { confine, countOomKills } from '../confine.js';
import { watchDisk } from '../limits/disk-watch.js';
import { MemoryWatch } from '../limits/memory-watch.js';
import { startPlain } from '../plain-runtime.js';
import type { Item } from '../protocol/frames.js';
import type { RuntimeProcess } from '../runtime-process.js';
import { EventQueue } from './event-queue.js';
import type { ShimEvent, ShimLimit, ShimRequest } from './shim-calls.js';

const WATCH_INTERVAL_MS = 250;
/** Once all processes of the runtime are gone, its pipes end at once. This timeout is only a safeguard. */
const DRAIN_MS = 3000;
const NOTHING = Buffer.alloc(0);

/** One launch in the agent's container: its processes, its output and the limits that only this container can measure. */
export class ShimLaunch {
  private readonly events = new EventQueue<Item>();
  private readonly runtime: RuntimeProcess;
  private readonly sources: Socket[];
  private readonly oomKillsBefore: number;
  private limited: ShimLimit | undefined;
  private isOver = false;

  /**
   * Starts the launch.
   * @param pipes a folder for its named pipes
   * @param sweep ends the processes of the container that belong to no launch
   * @throws Error if it cannot be started
   */
  constructor(
    private readonly shimRequest: ShimRequest,
    pipes: string,
    private readonly sweep: () => void,
  ) {
    const { request } = shimRequest;
    this.oomKillsBefore = countOomKills(request.cgroups);
    for (const folder of request.clear?.folders ?? []) empty(folder);
    const ends = openPipes(request.stage.confine, pipes);
    this.sources = ends.map(
      ({ read }) => new Socket({ fd: read, readable: true, writable: false }),
    );
    this.runtime = startPlain(request, request.stage, [ends[0].write, ends[1].write], 'child');
    for (const { write } of ends) closeSync(write);
  }

  /** Yields what happens until the launch has ended and nothing is left of it. Leaving the loop kills it. */
  async *follow(): AsyncGenerator<Item, void, undefined> {
    this.supervise().then(
      () => this.events.close(),
      () => this.events.close(),
    );
    try {
      yield* this.events.read();
    } finally {
      await this.end();
    }
  }

  terminate(): void {
    this.runtime.terminate();
  }

  destroy(): void {
    this.runtime.destroy();
  }

  /** Kills the launch, and resolves when nothing is left of it. */
  async end(): Promise<void> {
    if (this.isOver) return;
    this.runtime.destroy();
    await this.runtime.exited;
    this.isOver = true;
    this.sweep();
    for (const source of this.sources) source.destroy();
  }

  private async supervise(): Promise<void> {
    const { request } = this.shimRequest;
    const drained = Promise.all(this.sources.map((source, i) => this.pump(source, i)));
    try {
      await this.runtime.started;
    } catch {
      // What it has written to its standard error says why.
      await this.finish(drained);
      return;
    }
    await this.emit({ kind: 'started' });
    const disk = watchDisk(request.disk, request.limits.diskBytes, () => this.runtime.pids());
    const memory = new MemoryWatch(
      request.limits.memoryBytes,
      () => this.runtime.pids(),
      () => request.scratchFolders,
      false,
    );
    const watch = setInterval(() => {
      if (this.ranOutOfMemory()) this.limit('memory_limit');
      for (const [watched, reason] of [
        [memory, 'memory_limit'],
        [disk, 'disk_limit'],
      ] as const) {
        watched.exceeded().then(
          (exceeded) => exceeded && this.limit(reason),
          () => undefined,
        );
      }
    }, WATCH_INTERVAL_MS);
    await this.runtime.exited;
    clearInterval(watch);
    if (this.ranOutOfMemory()) this.limit('memory_limit');
    // Includes what was written since the last check, because a full disk may be the reason why a program failed.
    if (await disk.exceeded().catch(() => false)) this.limit('disk_limit');
    await this.finish(drained);
  }

  private async finish(drained: Promise<unknown>): Promise<void> {
    const code = await this.runtime.exited;
    this.runtime.destroy();
    this.isOver = true;
    this.sweep();
    await Promise.race([drained, delay(DRAIN_MS, undefined, { ref: false })]);
    for (const source of this.sources) source.destroy();
    if (code !== null) await this.emit({ kind: 'exit', code });
  }

  private limit(reason: ShimLimit): void {
    if (this.limited !== undefined) return;
    this.limited = reason;
    void this.emit({ kind: 'limit', reason });
  }

  private ranOutOfMemory(): boolean {
    return countOomKills(this.shimRequest.request.cgroups) > this.oomKillsBefore;
  }

  private async pump(source: Socket, index: number): Promise<void> {
    const kind = index === 0 ? 'stdout' : 'stderr';
    try {
      for await (const data of source as AsyncIterable<Buffer>) await this.emit({ kind }, data);
    } catch {
      // It was closed because the launch has ended.
    }
  }

  private async emit(header: ShimEvent, bytes: Buffer = NOTHING): Promise<void> {
    await this.events.push({ header: { ...header }, bytes });
  }
}

interface PipeEnds {
  read: number;
  write: number;
}

/**
 * Pipes for standard output and standard error. They are named pipes, because programs cannot reopen the ones that Node
 * makes, and lose their names at once.
 */
function openPipes(program: string, folder: string): readonly [PipeEnds, PipeEnds] {
  const paths = ['out', 'err'].map((name) => join(folder, `.${name}-${randomUUID()}`));
  const [file = '', ...args] = confine(program, { fifos: paths, lookUp: true });
  const { status, error } = spawnSync(file, [...args, 'sh'], { env: {}, stdio: 'ignore' });
  if (error !== undefined || status === null) throw error ?? new Error('no pipes');
  const open = (path: string): PipeEnds => {
    const flags = constants.O_NOFOLLOW;
    const read = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | flags);
    const write = openSync(path, constants.O_WRONLY | flags);
    rmSync(path);
    return { read, write };
  };
  return [open(paths[0] ?? ''), open(paths[1] ?? '')];
}

/** Empties a folder as far as the agent's user may. */
function empty(folder: string): void {
  for (const name of readdirSync(folder)) {
    try {
      rmSync(join(folder, name), { recursive: true, force: true });
    } catch {
      // It belongs to another user.
    }
  }
}
