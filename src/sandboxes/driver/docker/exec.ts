import { Duplex, Readable } from 'node:stream';
import type Docker from 'dockerode';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { OutputTail } from '../../../supervisor/output-tail.js';
import { statusOf } from './engine.js';

export interface ExecCommand {
  command: readonly string[];
  /** `uid:gid`; default: root. */
  user?: string;
  env?: Readonly<Record<string, string>>;
  cwd?: string;
}

/** One piece of output of a command in a container. */
export interface ExecOutput {
  stream: 'stdout' | 'stderr';
  data: Buffer;
}

const HEADER_BYTES = 8;
/** How many bytes of both streams are kept, for messages. */
const KEPT_OUTPUT = 4096;
/** Larger than the largest network policy that validation accepts. */
const KEPT_STDOUT = 1024 * 1024;

/** A running command in a container: our end of its input, and its output as it arrives. */
export interface RunningExec {
  readonly stdin: Duplex;
  /** Ends when the command exits or the connection breaks. */
  output(): AsyncGenerator<ExecOutput, void, undefined>;
  /** `null` while it runs. */
  exitCode(): Promise<number | null>;
  /** Disconnects from the command, whose input then ends. */
  close(): void;
}

/**
 * Starts a command in a running container.
 * @throws SandboxError `gone` if there is no such container, `unavailable` if it is stopped or paused; other errors of
 *   the engine's client
 */
export async function startExec(
  container: Docker.Container,
  { command, user = '0:0', env = {}, cwd }: ExecCommand,
): Promise<RunningExec> {
  let stdin: Duplex;
  let exec: Docker.Exec;
  try {
    exec = await container.exec({
      Cmd: [...command],
      User: user,
      Env: Object.entries(env).map(([name, value]) => `${name}=${value}`),
      ...(cwd === undefined ? {} : { WorkingDir: cwd }),
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
    });
    stdin = await exec.start({ hijack: true, stdin: true });
  } catch (error) {
    const kind = ({ 404: 'gone', 409: 'unavailable' } as const)[statusOf(error) ?? 0];
    if (kind === undefined) throw error;
    throw new SandboxError(kind, 'the sandbox does not run', { cause: error });
  }
  stdin.on('error', () => undefined);
  return {
    stdin,
    output: () => demultiplex(stdin),
    exitCode: async () => (await exec.inspect()).ExitCode,
    close: () => void stdin.destroy(),
  };
}

/** A command's standard input and output as one stream. */
export function streamOf(running: RunningExec): Duplex {
  const said = async function* (): AsyncGenerator<Buffer> {
    for await (const { stream, data } of running.output()) if (stream === 'stdout') yield data;
  };
  const readable = Readable.from(said(), { objectMode: false });
  const connection = Duplex.from({ readable, writable: running.stdin });
  return connection.once('close', () => running.close());
}

/** Parses the frames of the engine's multiplexed output: u8 stream, 3 bytes padding, u32 length, big-endian. */
function takeFrames(data: Buffer): { frames: ExecOutput[]; rest: Buffer } {
  const frames: ExecOutput[] = [];
  let rest = data;
  while (rest.length >= HEADER_BYTES) {
    const end = HEADER_BYTES + rest.readUInt32BE(4);
    if (rest.length < end) break;
    const stream = rest.readUInt8(0) === 2 ? 'stderr' : 'stdout';
    frames.push({ stream, data: rest.subarray(HEADER_BYTES, end) });
    rest = rest.subarray(end);
  }
  return { frames, rest };
}

/** The text of a complete log, with both streams interleaved as they arrived. */
export function textOf(log: Buffer): string {
  return Buffer.concat(takeFrames(log).frames.map(({ data }) => data)).toString('utf8');
}

async function* demultiplex(connection: Duplex): AsyncGenerator<ExecOutput, void, undefined> {
  let pending: Buffer = Buffer.alloc(0);
  try {
    for await (const data of connection as AsyncIterable<Buffer>) {
      const { frames, rest } = takeFrames(
        pending.length === 0 ? data : Buffer.concat([pending, data]),
      );
      pending = rest;
      yield* frames;
    }
  } catch (error) {
    // A broken connection ends the output. Callers that need to know more ask the engine.
    if ((error as NodeJS.ErrnoException).code === undefined) throw error;
  }
}

/**
 * Runs one short, trusted command in a running container to its end.
 * @throws SandboxError `gone`, `unavailable`, `aborted`, or `failed` if its exit is unknown
 */
export async function runExec(
  container: Docker.Container,
  command: ExecCommand & { stdin?: string | Buffer; signal?: AbortSignal },
): Promise<{ exitCode: number; stdout: string; output: string }> {
  if (command.signal?.aborted) throw new SandboxError('aborted', 'the operation was aborted');
  const running = await startExec(container, command);
  const abort = (): void => running.close();
  command.signal?.addEventListener('abort', abort);
  const output = new OutputTail(KEPT_OUTPUT);
  let stdout = '';
  try {
    running.stdin.end(command.stdin ?? '');
    for await (const { stream, data } of running.output()) {
      output.add(data);
      if (stream === 'stdout') stdout = (stdout + data.toString('utf8')).slice(-KEPT_STDOUT);
    }
  } finally {
    command.signal?.removeEventListener('abort', abort);
    running.close();
  }
  if (command.signal?.aborted) throw new SandboxError('aborted', 'the operation was aborted');
  const exitCode = await running.exitCode();
  if (exitCode === null) throw new SandboxError('failed', 'the engine let go of a command');
  return { exitCode, stdout, output: output.toString().trim() };
}
