/**
 * The parent of one launch's runtime, detached from the service: starts it, spools its output, enforces its limits and
 * records its exit. Reads one LaunchRequest from standard input and answers with one line.
 */
import { closeSync, fchownSync, readdirSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { countOomKills } from './confine.js';
import { sweepLaunch } from './launch-end.js';
import { LaunchFolder, type ExitRecord } from './launch-folder.js';
import type { LaunchAnswer, LaunchRequest, WakeTask } from './launch-request.js';
import { identifyProcess, isProcessAlive, type ProcessIdentity } from './processes.js';
import { type SpoolStream, SpoolWriter } from './spool-format.js';
import { watchDisk } from './limits/disk-watch.js';
import { MemoryWatch } from './limits/memory-watch.js';
import { OutputPipe } from './output-pipes.js';
import type { RuntimeProcess, RuntimeOutput } from './runtime-process.js';

/** The grace period between asking the runtime to end and killing it. */
const GRACE_MS = 600;
const WATCH_INTERVAL_MS = 250;
/** Once all processes of the runtime are gone, its pipes end at once. This timeout is only a safeguard. */
const DRAIN_MS = 3000;
const O_CLOEXEC = 0o2000000;
const MAX_TIMER_MS = 2 ** 31 - 1;

type EndReason = Exclude<ExitRecord['reason'], 'exited'>;

/**
 * Closes descriptors that the service's parent left open across exec, because the runtime would inherit them. Node does
 * that itself, but only up to the first gap in the numbers.
 */
function closeInheritedDescriptors(): void {
  for (const fd of readdirSync('/proc/self/fd').map(Number)) {
    if (fd <= 2) continue;
    try {
      const info = readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1');
      const flags = Number.parseInt(/^flags:\s+(\d+)/m.exec(info)?.[1] ?? '', 8);
      if ((flags & O_CLOEXEC) === 0) closeSync(fd);
    } catch {
      // The descriptor of this directory listing.
    }
  }
}

/** If the owner's state is unknown, it is not considered gone; the next check decides. */
function isGone(owner: ProcessIdentity): boolean {
  try {
    return !isProcessAlive(owner);
  } catch {
    return false;
  }
}

function answer(message: LaunchAnswer): void {
  try {
    writeSync(1, `${JSON.stringify(message)}\n`);
  } catch {
    // The service is gone. The next one finds the launch by its folder.
  }
}

async function startRuntime(
  request: LaunchRequest,
  output: RuntimeOutput,
): Promise<RuntimeProcess> {
  const { stage } = request;
  if (stage.kind === 'strict') {
    const { startStrict } = await import('./strict-runtime.js');
    return startStrict(request, stage, output);
  }
  if (stage.kind === 'shim') {
    const { startWithShim } = await import('./shim-runtime.js');
    return startWithShim(request, stage, output);
  }
  const { startPlain } = await import('./plain-runtime.js');
  return startPlain(request, stage, output);
}

/** Its HTTP client takes as long to load as everything else together, and only sprites need it. */
async function stayAwake(task: WakeTask): Promise<{ end(): Promise<void> }> {
  const module = await import('./wake-task.js');
  return module.stayAwake(task);
}

/** Empties folders of a container as the user who fills them, because links in them may point anywhere. */
function clear({ folders, as }: NonNullable<LaunchRequest['clear']>): void {
  process.seteuid?.(as);
  try {
    for (const folder of folders) {
      for (const name of readdirSync(folder)) {
        try {
          rmSync(join(folder, name), { recursive: true, force: true });
        } catch {
          // It belongs to another user.
        }
      }
    }
  } finally {
    process.seteuid?.(0);
  }
}

async function supervise(folder: LaunchFolder, request: LaunchRequest): Promise<void> {
  const { stage } = request;
  // With namespaces, everything ends with the first process. Otherwise all processes of the user are killed.
  const sweep = () => sweepLaunch(folder, stage.kind === 'plain' ? stage.uid : null);
  let runtime: RuntimeProcess | undefined;
  let isRunning = false;
  let ending: EndReason | null = null;
  const stop = (started: RuntimeProcess): void => {
    // What does not run yet has nothing to finish.
    const graceful = isRunning && (ending === 'killed' || ending === 'deadline');
    if (graceful) started.terminate();
    setTimeout(() => started.destroy(), graceful ? GRACE_MS : 0);
  };
  const end = (reason: EndReason): void => {
    if (ending !== null) return;
    ending = reason;
    if (runtime !== undefined) stop(runtime);
  };
  // Before anybody can know this process. Otherwise the signal would end only this process, and leave what it has started.
  process.on('SIGTERM', () => end('killed'));
  const self = identifyProcess(process.pid);
  if (self === null || !folder.claimStart({ supervisor: self })) {
    answer({ ok: true });
    return;
  }
  await sweep();
  // A shim clears them in its own container.
  if (request.clear !== undefined && stage.kind !== 'shim') clear(request.clear);
  const awake = request.wake && (await stayAwake(request.wake));
  const spool = new SpoolWriter(folder.spool);
  const pipes = [
    new OutputPipe(folder.path, 'stdout'),
    new OutputPipe(folder.path, 'stderr'),
  ] as const;
  if (stage.kind === 'plain' && stage.uid !== null) {
    // The runtime may reopen its descriptors by name, which needs the permissions of its own user.
    for (const { writeEnd } of pipes) fchownSync(writeEnd, stage.uid, stage.uid);
  }
  runtime = await startRuntime(request, [pipes[0].writeEnd, pipes[1].writeEnd]);
  if (ending !== null) stop(runtime);
  for (const pipe of pipes) pipe.releaseWriteEnd();
  process.on('uncaughtException', (error) => {
    writeSync(2, `${error.stack ?? error.message}\n`);
    runtime?.destroy();
    process.exit(1);
  });

  try {
    await runtime.started;
    isRunning = true;
  } catch (error) {
    runtime.destroy();
    const complaint = pipes[1].drainText().trim().split('\n').at(-1) ?? '';
    if (ending !== null) folder.recordExit({ reason: ending, exitCode: null });
    answer({ ok: false, message: complaint || (error as Error).message });
    await awake?.end();
    return;
  }

  let written = 0;
  const take = (stream: SpoolStream, data: Buffer): void => {
    const room = request.outputLimit - written;
    const kept = data.length > room ? data.subarray(0, Math.max(room, 0)) : data;
    written += kept.length;
    try {
      if (kept.length > 0) spool.append(stream, kept);
    } catch {
      end('disk_limit');
    }
    if (kept.length < data.length) end('output_limit');
  };
  const pumped = Promise.all(pipes.map((pipe) => pipe.pump((data) => take(pipe.stream, data))));
  answer({ ok: true });

  const disk = watchDisk(request.disk, request.limits.diskBytes, () => runtime.pids());
  const { cgroups } = request;
  const memory = new MemoryWatch(
    request.limits.memoryBytes,
    () => runtime.pids(),
    () => request.scratchFolders.map((path) => `${runtime.root()}${path}`),
    // A container's group limit includes supervisors, so the launch's own limit is monitored there.
    cgroups !== null && cgroups.procs.length > 0 && cgroups.memoryEvents.length > 0,
  );
  // For a container, the counter starts with the container, so earlier kills are subtracted.
  const oomKillsBefore = countOomKills(cgroups);
  const ranOutOfMemory = (): boolean => countOomKills(cgroups) > oomKillsBefore;
  const watch = setInterval(() => {
    const remaining = request.deadline - Date.now();
    if (remaining <= 0) end('deadline');
    if (request.owner !== null && isGone(request.owner)) end('killed');
    if (ranOutOfMemory()) end('memory_limit');
    if (runtime.limited !== undefined) return;
    for (const [watched, reason] of [
      [memory, 'memory_limit'],
      [disk, 'disk_limit'],
    ] as const) {
      watched.exceeded().then(
        (exceeded) => exceeded && end(reason),
        () => undefined,
      );
    }
  }, WATCH_INTERVAL_MS);
  runtime.limited?.then(end, () => undefined);
  const deadline = setTimeout(
    () => Date.now() >= request.deadline && end('deadline'),
    Math.min(Math.max(request.deadline - Date.now(), 0), MAX_TIMER_MS),
  );

  const exitCode = await runtime.exited;
  clearInterval(watch);
  clearTimeout(deadline);
  if (exitCode === null) {
    // Without a record of its exit, the launch is lost, after the output that is there.
    await Promise.race([pumped, delay(DRAIN_MS)]);
    spool.close();
    return;
  }
  if (ranOutOfMemory()) ending ??= 'memory_limit';
  runtime.destroy();
  await sweep().catch((error: unknown) =>
    writeSync(2, `remaining processes could not be ended: ${String(error)}\n`),
  );
  // Includes what was written since the last check, because a full disk may be the reason why a program failed.
  const countsDisk = runtime.limited === undefined;
  if (ending === null && countsDisk && (await disk.exceeded().catch(() => false)))
    ending = 'disk_limit';
  await Promise.race([pumped, delay(DRAIN_MS)]);
  spool.close();
  folder.recordExit(
    ending === null ? { reason: 'exited', exitCode } : { reason: ending, exitCode: null },
  );
  await awake?.end();
}

closeInheritedDescriptors();
const request = JSON.parse(readFileSync(0, 'utf8')) as LaunchRequest;
await supervise(new LaunchFolder(process.argv[2] ?? ''), request);
process.exit(0);
