import { createWriteStream, openSync, type WriteStream } from 'node:fs';
import { connect } from 'node:net';
import { once } from 'node:events';
import type { LaunchRequest, ShimStage } from './launch-request.js';
import { CallConnection } from './protocol/call-client.js';
import type { RuntimeOutput, RuntimeProcess } from './runtime-process.js';
import type { ShimLimit, ShimRequest } from './shim/shim-calls.js';

const LIMITS: readonly unknown[] = ['disk_limit', 'memory_limit'] satisfies ShimLimit[];
/**
 * The runtime in another container of the pod, where the shim starts it. Its output is copied to the launch's pipes, as
 * fast as they are read. What the shim says is treated as hostile: it runs as the agent's user.
 */
export function startWithShim(
  request: LaunchRequest,
  { socket, launchId, stage }: ShimStage,
  output: RuntimeOutput,
): RuntimeProcess {
  const stop = new AbortController();
  const started = Promise.withResolvers<void>();
  const exited = Promise.withResolvers<number | null>();
  const limited = Promise.withResolvers<ShimLimit>();
  started.promise.catch(() => undefined);
  // Copies of the pipes' ends, which the caller closes.
  const [stdout, stderr] = output.map((fd) =>
    createWriteStream('', { fd: openSync(`/proc/self/fd/${fd}`, 'w') }).on(
      'error',
      () => undefined,
    ),
  ) as [WriteStream, WriteStream];
  const streams = { stdout, stderr };
  const connection = new CallConnection(connect({ path: socket }));
  const shimRequest: ShimRequest = { launchId, request: { ...request, stage } };

  const follow = async (): Promise<number | null> => {
    const input = Buffer.from(JSON.stringify(shimRequest));
    const { signal } = stop;
    // A script ends with the process that waits for it.
    const parameters = { isTurn: request.owner === null };
    for await (const item of connection.call({ name: 'run', parameters, input, signal })) {
      const { kind, reason, code } = item.header;
      if (kind === 'started') started.resolve();
      else if (kind === 'stdout' || kind === 'stderr') await write(streams[kind], item.bytes);
      else if (kind === 'limit' && LIMITS.includes(reason)) limited.resolve(reason as ShimLimit);
      else if (kind === 'exit' && isExitCode(code)) return code;
    }
    return null;
  };
  const finish = async (): Promise<void> => {
    const code = await follow().catch(() => null);
    await Promise.all([stdout, stderr].map((stream) => new Promise((end) => stream.end(end))));
    const why = code === null ? 'its container has ended' : `exit code ${code}`;
    started.reject(new Error(`the sandbox could not be set up (${why})`));
    exited.resolve(code);
    connection.close();
  };
  void finish();

  const tell = (name: 'TERM' | 'KILL'): void => {
    const parameters = { launchId, name };
    const call = connection.call({ name: 'signal', parameters, signal: AbortSignal.timeout(5000) });
    call.next().catch(() => undefined);
  };
  return {
    started: started.promise,
    exited: exited.promise,
    limited: limited.promise,
    root: () => '',
    pids: () => [],
    terminate: () => tell('TERM'),
    destroy: () => tell('KILL'),
  };
}

async function write(stream: WriteStream, data: Buffer): Promise<void> {
  if (stream.destroyed || stream.write(data)) return;
  await Promise.race([once(stream, 'drain'), once(stream, 'close')]);
}

function isExitCode(code: unknown): code is number {
  return Number.isInteger(code) && Number(code) >= 0 && Number(code) <= 255;
}
