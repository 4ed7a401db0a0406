import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { ScriptResult, SpoolChunk, SpoolEvent } from './calls.js';
import { parseExit } from './launch-folder.js';
import {
  CallConnection,
  type CallOptions,
  type ConnectionLimits,
  ConnectionLost,
  unlessAborted,
} from './protocol/call-client.js';
import type { Item } from './protocol/frames.js';
import { isTimeout, SandboxError, type UnknownState } from './sandbox-error.js';
import type { FileRequest } from './files/file-call.js';
import { TAIL_BYTES } from './scripts.js';
import { FRAME_HEADER_BYTES, MAX_FRAME_PAYLOAD } from './spool-format.js';
import type { LaunchName, NewLaunch, Supervisor } from './supervisor.js';

const RETRY_MS = 250;
/** How long the client tries to end an aborted launch. */
const ABORT_LIMIT_MS = 10_000;
const LOST: SpoolEvent = { kind: 'exit', reason: 'lost', exitCode: null };

/**
 * A supervisor that is reached over a byte stream. If the connection breaks, calls are retried on a new one. That is
 * safe for all calls except `run`, which fails instead. Following resumes after the last chunk.
 */
export class SupervisorClient implements Supervisor {
  private connecting: Promise<CallConnection> | undefined;
  private connected: CallConnection | undefined;

  /**
   * @param options.connect opens a connection to the program `serve.ts` of the sandbox; throws SandboxError `gone` if
   *   there is certainly no such sandbox, `unavailable` if that is unknown
   * @param options.unknown called if the state of a launch is unknown
   */
  constructor(
    private readonly options: {
      connect: () => Promise<Duplex>;
      unknown?: (launchId: string) => UnknownState;
    } & ConnectionLimits,
  ) {}

  get isConnected(): boolean {
    return this.connected?.isOpen ?? false;
  }

  async launch({ launchId, request, signal }: NewLaunch): Promise<void> {
    const input = Buffer.from(JSON.stringify(request));
    try {
      await this.repeated({ name: 'launch', parameters: { launchId }, input, signal });
    } catch (error) {
      if (!signal.aborted) throw error;
      // After a timeout the launch may run and may be needed. The caller launches it again to find out.
      if (isTimeout(signal)) {
        throw new SandboxError('unavailable', 'the sandbox does not answer in time');
      }
      const limit = AbortSignal.timeout(ABORT_LIMIT_MS);
      await this.kill({ launchId, signal: limit }).catch(() => undefined);
      throw error;
    }
  }

  async *follow(
    options: LaunchName & { offset: number },
  ): AsyncGenerator<SpoolEvent, void, undefined> {
    const { launchId, signal } = options;
    const unknown = this.options.unknown?.(launchId);
    let { offset } = options;
    try {
      for (;;) {
        try {
          const connection = await this.connectionUnlessGone(signal);
          if (connection === undefined) {
            yield LOST;
            return;
          }
          const parameters = { launchId, offset };
          for await (const item of connection.call({ name: 'follow', parameters, signal })) {
            unknown?.clear();
            const event = eventOf(item, offset);
            yield event;
            if (event.kind === 'exit') return;
            offset = event.nextOffset;
          }
        } catch (error) {
          if (signal.aborted) throw new SandboxError('aborted', 'following was aborted');
          if (!isAway(error)) throw error;
          unknown?.note(error);
        }
        await delay(RETRY_MS, undefined, { signal }).catch(() => undefined);
      }
    } finally {
      unknown?.clear();
    }
  }

  async kill({ launchId, signal }: LaunchName): Promise<void> {
    await this.repeated({ name: 'kill', parameters: { launchId }, signal });
  }

  async discard({ launchId, signal }: LaunchName): Promise<void> {
    await this.repeated({ name: 'discard', parameters: { launchId }, signal });
  }

  async run({ launchId, request, signal }: NewLaunch): Promise<ScriptResult> {
    const input = Buffer.from(JSON.stringify(request));
    const connection = await this.connection(signal);
    try {
      const call = connection.call({ name: 'run', parameters: { launchId }, input, signal });
      for await (const item of call) return resultOf(item);
    } catch (error) {
      if (!(error instanceof ConnectionLost)) throw error;
    }
    throw new SandboxError('failed', 'the script was interrupted');
  }

  async write({ files, home, signal }: Parameters<Supervisor['write']>[0]): Promise<void> {
    await this.repeated({ name: 'write', parameters: { home }, input: files, signal });
  }

  async *files(options: Parameters<Supervisor['files']>[0]): ReturnType<Supervisor['files']> {
    const { request, roots, input, signal } = options;
    const parameters = { request: request satisfies FileRequest, roots };
    const connection = await this.connection(signal);
    try {
      yield* connection.call({ name: 'files', parameters, input, signal });
    } catch (error) {
      if (!(error instanceof ConnectionLost)) throw error;
      throw new SandboxError('unavailable', 'the access to the files was interrupted', {
        cause: error,
      });
    }
  }

  async hasPrograms(options: Parameters<Supervisor['hasPrograms']>[0]): Promise<boolean> {
    const { names, environment, signal } = options;
    const input = Buffer.from(JSON.stringify({ names, environment }));
    const item = await this.repeated({ name: 'hasPrograms', parameters: {}, input, signal });
    return item?.header['has'] === true;
  }

  /** Closes the connection. Launches continue. */
  async close(): Promise<void> {
    const connection = await this.connecting?.catch(() => undefined);
    connection?.close();
  }

  /** Retries a call each time its connection breaks. @returns the first item, if it yields any */
  private async repeated(call: CallOptions): Promise<Item | undefined> {
    for (;;) {
      const connection = await this.connection(call.signal);
      try {
        for await (const item of connection.call(call)) return item;
        return undefined;
      } catch (error) {
        if (call.signal.aborted) throw new SandboxError('aborted', 'the call was aborted');
        if (!(error instanceof ConnectionLost)) throw error;
      }
      await delay(RETRY_MS, undefined, { signal: call.signal }).catch(() => undefined);
    }
  }

  private async connectionUnlessGone(signal: AbortSignal): Promise<CallConnection | undefined> {
    try {
      return await this.connection(signal);
    } catch (error) {
      if (error instanceof SandboxError && error.kind === 'gone') return undefined;
      throw error;
    }
  }

  /** The shared connection, or a new one. */
  private async connection(signal: AbortSignal): Promise<CallConnection> {
    for (;;) {
      const before = this.connecting;
      const current = await unlessAborted(
        before?.catch(() => undefined),
        signal,
      );
      if (current?.isOpen) return current;
      // Another call was faster.
      if (this.connecting !== before) continue;
      const { connect, ...limits } = this.options;
      this.connecting = connect().then(
        (stream) => (this.connected = new CallConnection(stream, limits)),
      );
      // There may be no call left that waits for it when it fails.
      this.connecting.catch(() => undefined);
      return unlessAborted(this.connecting, signal);
    }
  }
}

/** Whether the effect of a call is unknown. */
function isAway(error: unknown): boolean {
  if (error instanceof SandboxError) return error.kind === 'unavailable';
  return error instanceof ConnectionLost;
}

/** Validates the result of a script, because it may come from inside a sandbox. */
function resultOf({ header: { exitCode }, bytes }: Item): ScriptResult {
  const isCode = Number.isInteger(exitCode) && Number(exitCode) >= 0 && Number(exitCode) <= 255;
  // Bytes that are not UTF-8 take up to three times as much space.
  if (!isCode || bytes.length > TAIL_BYTES * 3) {
    throw new SandboxError('failed', 'the result of the script cannot be read');
  }
  return { exitCode: Number(exitCode), outputTail: bytes.toString('utf8') };
}

/** Validates a launch event of a supervisor, because it may come from inside a sandbox. */
function eventOf({ header, bytes }: Item, offset: number): SpoolEvent {
  if (header['kind'] === 'exit') {
    if (header['reason'] === 'lost') return LOST;
    const exit = parseExit(header);
    if (exit === null) throw new SandboxError('failed', 'the exit of the runtime cannot be read');
    return { kind: 'exit', ...exit };
  }
  const { stream, offset: begin } = header;
  const isChunk =
    (stream === 'stdout' || stream === 'stderr') &&
    bytes.length > 0 &&
    bytes.length <= MAX_FRAME_PAYLOAD &&
    begin === offset;
  if (!isChunk) throw new SandboxError('failed', 'the output of the sandbox cannot be read');
  const nextOffset = offset + FRAME_HEADER_BYTES + bytes.length;
  return { kind: 'chunk', stream, data: bytes, offset, nextOffset } satisfies SpoolChunk;
}
