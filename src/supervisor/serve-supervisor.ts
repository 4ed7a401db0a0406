import type { Duplex } from 'node:stream';
import type { FileRequest, FileRoots } from './files/file-call.js';
import type { LaunchRequest } from './launch-request.js';
import { serveCalls, type CallHandler } from './protocol/call-server.js';
import { SandboxError } from './sandbox-error.js';
import type { Supervisor } from './supervisor.js';

/** The maximum input of a call, in bytes. The limits of prompts, environments and files are far lower. */
const MAX_INPUT_BYTES = 64 * 1024 * 1024;

/** The maximum input of `hasPrograms`. */
type LookUp = Pick<Parameters<Supervisor['hasPrograms']>[0], 'names' | 'environment'>;

/** Answers a worker's calls over one connection until the connection ends. Launches continue. */
export function serveSupervisor(
  connection: Duplex,
  supervisor: Supervisor,
  options: { beatMs?: number } = {},
): Promise<void> {
  return serveCalls(connection, handlersOf(supervisor), options);
}

function handlersOf(supervisor: Supervisor): Record<string, CallHandler> {
  return {
    async launch({ parameters, input }) {
      // The launch continues if the connection breaks, because the worker reconnects and finds it.
      const { signal } = new AbortController();
      const request = (await jsonOf(input)) as LaunchRequest;
      await supervisor.launch({ launchId: launchIdOf(parameters), request, signal });
    },
    async *run({ parameters, input, signal }) {
      const request = (await jsonOf(input)) as LaunchRequest;
      const launchId = launchIdOf(parameters);
      const { exitCode, outputTail } = await supervisor.run({ launchId, request, signal });
      yield { header: { exitCode }, bytes: Buffer.from(outputTail) };
    },
    async write({ parameters, input, signal }) {
      const home = String(parameters['home']);
      await supervisor.write({ files: await readAll(input), home, signal });
    },
    files({ parameters, input, signal }) {
      const request = parameters['request'] as FileRequest;
      return supervisor.files({ request, roots: parameters['roots'] as FileRoots, input, signal });
    },
    async *hasPrograms({ input, signal }) {
      const { names, environment } = (await jsonOf(input)) as LookUp;
      const has = await supervisor.hasPrograms({ names, environment, signal });
      yield { header: { has }, bytes: Buffer.alloc(0) };
    },
    async kill({ parameters, signal }) {
      await supervisor.kill({ launchId: launchIdOf(parameters), signal });
    },
    async discard({ parameters, signal }) {
      await supervisor.discard({ launchId: launchIdOf(parameters), signal });
    },
    async *follow({ parameters, signal }) {
      const { offset } = parameters;
      if (!Number.isSafeInteger(offset) || Number(offset) < 0) {
        throw new SandboxError('failed', 'not an offset');
      }
      const launchId = launchIdOf(parameters);
      for await (const event of supervisor.follow({ launchId, offset: Number(offset), signal })) {
        if (event.kind === 'exit') yield { header: { ...event }, bytes: Buffer.alloc(0) };
        else {
          const { kind, stream, offset: begin, data } = event;
          yield { header: { kind, stream, offset: begin }, bytes: data };
        }
      }
    },
  };
}

function launchIdOf({ launchId }: Record<string, unknown>): string {
  if (typeof launchId !== 'string') throw new SandboxError('failed', 'a launch has no id');
  return launchId;
}

async function readAll(input: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of input) {
    bytes += piece.length;
    if (bytes > MAX_INPUT_BYTES) throw new SandboxError('failed', 'the call is too long');
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

async function jsonOf(input: AsyncIterable<Buffer>): Promise<unknown> {
  return JSON.parse((await readAll(input)).toString('utf8'));
}
