import type { Duplex } from 'node:stream';
import type Docker from 'dockerode';
import { SandboxError } from '../sandbox-error.js';
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
const KEPT_OUTPUT = 4096;

/** A command that runs in a container: our end of its input, and its output as it comes. */
export interface RunningExec {
  readonly stdin: Duplex;
  /** Ends when the command has, or when the connection broke. */
  output(): AsyncGenerator<ExecOutput, void, undefined>;
  /** `null` while it runs. */
  exitCode(): Promise<number | null>;
  /** Lets go of it: its input ends. */
  close(): void;
}

/**
 * Starts a command in a running container.
 * @throws SandboxError `gone` when there is no such container or it does not run; what the engine's client throws
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
    if (statusOf(error) !== 404 && statusOf(error) !== 409) throw error;
    throw new SandboxError('gone', 'the sandbox does not run', { cause: error });
  }
  stdin.on('error', () => undefined);
  return {
    stdin,
    output: () => demultiplex(stdin),
    exitCode: async () => (await exec.inspect()).ExitCode,
    close: () => void stdin.destroy(),
  };
}

/** Takes whole frames off what the engine sends of both streams: u8 stream, 3 bytes nothing, u32 length, big-endian. */
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

/** The text of a whole log, both streams as they came. */
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
    // A broken connection is the end of it; who cares asks the engine for the rest.
    if ((error as NodeJS.ErrnoException).code === undefined) throw error;
  }
}

/**
 * Runs one short, trusted command in a running container to its end.
 * @throws SandboxError `gone`, `aborted`, `failed` when its end was not seen
 */
export async function runExec(
  container: Docker.Container,
  command: ExecCommand & { stdin?: string | Buffer; signal?: AbortSignal },
): Promise<{ exitCode: number; stdout: string; output: string }> {
  if (command.signal?.aborted) throw new SandboxError('aborted', 'the operation was aborted');
  const running = await startExec(container, command);
  const abort = (): void => running.close();
  command.signal?.addEventListener('abort', abort);
  let output = '';
  let stdout = '';
  try {
    running.stdin.end(command.stdin ?? '');
    for await (const { stream, data } of running.output()) {
      output = (output + data.toString('utf8')).slice(-KEPT_OUTPUT);
      if (stream === 'stdout') stdout = (stdout + data.toString('utf8')).slice(-KEPT_OUTPUT);
    }
  } finally {
    command.signal?.removeEventListener('abort', abort);
    running.close();
  }
  if (command.signal?.aborted) throw new SandboxError('aborted', 'the operation was aborted');
  const exitCode = await running.exitCode();
  if (exitCode === null) throw new SandboxError('failed', 'the engine let go of a command');
  return { exitCode, stdout, output: output.trim() };
}
