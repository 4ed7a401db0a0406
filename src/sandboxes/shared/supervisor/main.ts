/**
 * The parent of one launch's runtime, detached from the service: starts it, spools its output, holds it to its limits and
 * records how it ended. Reads one LaunchRequest from standard input and answers with one line.
 */
import {
  closeSync,
  constants,
  fchownSync,
  openSync,
  readdirSync,
  readFileSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { LaunchFolder, type ExitRecord } from '../launch/launch-folder.js';
import type { LaunchAnswer, LaunchRequest } from '../launch/launch-request.js';
import { identifyProcess, isProcessAlive } from '../launch/process-identity.js';
import type { SpoolStream } from '../spool/spool-format.js';
import { DiskWatch } from './disk-watch.js';
import { exceedsMemory } from './memory-watch.js';
import { OutputPipe } from './output-pipes.js';
import type { RuntimeProcess, RuntimeStdio } from './runtime-process.js';
import { SpoolWriter } from './spool-writer.js';

/** How long a runtime that is asked to end may take before it is made to. */
const GRACE_MS = 600;
const WATCH_INTERVAL_MS = 250;
/** Once nothing of the runtime is left, its pipes end at once; this only bounds the unforeseen. */
const DRAIN_MS = 3000;
const O_CLOEXEC = 0o2000000;
const MAX_TIMER_MS = 2 ** 31 - 1;

type EndReason = Exclude<ExitRecord['reason'], 'exited'>;

/**
 * Closes what whoever started the service left open across exec: the runtime would inherit it. Node itself does that
 * only up to the first gap in the numbers.
 */
function closeInheritedDescriptors(): void {
  for (const fd of readdirSync('/proc/self/fd').map(Number)) {
    if (fd <= 2) continue;
    try {
      const info = readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1');
      const flags = Number.parseInt(/^flags:\s+(\d+)/m.exec(info)?.[1] ?? '', 8);
      if ((flags & O_CLOEXEC) === 0) closeSync(fd);
    } catch {
      // The descriptor of this listing itself.
    }
  }
}

function answer(message: LaunchAnswer): void {
  try {
    writeSync(1, `${JSON.stringify(message)}\n`);
  } catch {
    // The service is gone; its successor finds the launch by its folder.
  }
}

/** A file without a name holds what the runtime reads, so that `/dev/stdin` can be reopened and nobody has to feed it. */
function openStdin(folder: string, content: string): number {
  const path = join(folder, 'stdin');
  const writer = openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600);
  const bytes = Buffer.from(content);
  for (let done = 0; done < bytes.length;) done += writeSync(writer, bytes, done);
  closeSync(writer);
  const reader = openSync(path, constants.O_RDONLY);
  unlinkSync(path);
  return reader;
}

async function startRuntime(request: LaunchRequest, stdio: RuntimeStdio): Promise<RuntimeProcess> {
  const { stage } = request;
  if (stage.kind === 'strict') {
    const { startStrict } = await import('./strict-runtime.js');
    return startStrict(request, stage, stdio);
  }
  const { startPlain } = await import('./plain-runtime.js');
  return startPlain(request, stage, stdio);
}

async function supervise(request: LaunchRequest): Promise<void> {
  const folder = new LaunchFolder(request.folder);
  const self = identifyProcess(process.pid);
  if (self === null || !folder.claimStart({ supervisor: self })) {
    answer({ ok: true });
    return;
  }
  const spool = new SpoolWriter(folder.spool);
  const pipes = [
    new OutputPipe(request.folder, 'stdout'),
    new OutputPipe(request.folder, 'stderr'),
  ] as const;
  const stdin = openStdin(request.folder, request.stdin);
  if (request.stage.kind === 'plain' && request.stage.uid !== null) {
    // The runtime may reopen its own descriptors by name, which asks for the rights of its user, not of this one.
    for (const fd of [stdin, pipes[0].writeEnd, pipes[1].writeEnd]) {
      fchownSync(fd, request.stage.uid, request.stage.uid);
    }
  }
  const runtime = await startRuntime(request, [stdin, pipes[0].writeEnd, pipes[1].writeEnd]);
  closeSync(stdin);
  for (const pipe of pipes) pipe.releaseWriteEnd();

  let ending: EndReason | null = null;
  const end = (reason: EndReason): void => {
    if (ending !== null) return;
    ending = reason;
    const graceful = reason === 'killed' || reason === 'deadline';
    if (graceful) runtime.terminate();
    setTimeout(() => runtime.destroy(), graceful ? GRACE_MS : 0);
  };
  process.on('SIGTERM', () => end('killed'));
  process.on('uncaughtException', (error) => {
    writeSync(2, `${error.stack ?? error.message}\n`);
    runtime.destroy();
    process.exit(1);
  });

  try {
    await runtime.started;
  } catch (error) {
    runtime.destroy();
    const complaint = pipes[1].drainText().trim().split('\n').at(-1) ?? '';
    if (ending !== null) folder.recordExit({ reason: ending, exitCode: null });
    answer({ ok: false, message: complaint || (error as Error).message });
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

  const disk = new DiskWatch(request.countedFolders, request.limits.diskBytes, () =>
    runtime.pids(),
  );
  const watch = setInterval(() => {
    const remaining = request.deadline - Date.now();
    if (remaining <= 0) end('deadline');
    if (request.owner !== null && !isProcessAlive(request.owner)) end('killed');
    if (exceedsMemory(runtime.pids(), request.limits.memoryBytes)) end('memory_limit');
    disk.exceeded().then(
      (exceeded) => exceeded && end('disk_limit'),
      () => undefined,
    );
  }, WATCH_INTERVAL_MS);
  const deadline = setTimeout(
    () => Date.now() >= request.deadline && end('deadline'),
    Math.min(Math.max(request.deadline - Date.now(), 0), MAX_TIMER_MS),
  );

  const exitCode = await runtime.exited;
  clearInterval(watch);
  clearTimeout(deadline);
  runtime.destroy();
  await Promise.race([pumped, delay(DRAIN_MS)]);
  spool.close();
  folder.recordExit(
    ending === null ? { reason: 'exited', exitCode } : { reason: ending, exitCode: null },
  );
}

closeInheritedDescriptors();
await supervise(JSON.parse(readFileSync(0, 'utf8')) as LaunchRequest);
process.exit(0);
