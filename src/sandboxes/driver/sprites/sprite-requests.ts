import { SandboxError } from '../../../supervisor/sandbox-error.js';
import type { Existence } from '../sandbox-driver.js';
import type { SpriteNames } from './options.js';
import { asSandboxError } from './sprites-errors.js';
import { SpritesError, type SpritesApi, type SpritesRequest } from './sprites-api.js';

const EXIT_FRAME = 3;
const PAGE = 50;
/** For questions whose answer may also be "unknown". */
const SHORT_MS = 5_000;

/** Requests about an installation's sprites, with errors that the callers of a driver understand. */
export class SpriteRequests {
  constructor(
    readonly api: SpritesApi,
    readonly names: SpriteNames,
  ) {}

  /** Sends a request about an existing sprite. @param options its path is below the sprite's */
  send(sandboxId: string, options: SpritesRequest): Promise<Buffer> {
    const path = [this.names.of(sandboxId), ...options.path];
    return this.inside(sandboxId, options.signal, () => this.api.request({ ...options, path }));
  }

  /** Runs a short command. Its output may lack or contain single bytes of framing. */
  async run(
    sandboxId: string,
    command: readonly [string, ...string[]],
    input: Buffer | undefined,
    signal: AbortSignal,
  ): Promise<{ exitCode: number; output: string }> {
    const answer = await this.send(sandboxId, {
      method: 'POST',
      path: ['exec'],
      query: [
        ...command.map((part) => ['cmd', part] as const),
        ['path', command[0]],
        ...(input === undefined ? [] : [['stdin', 'true'] as const]),
      ],
      ...(input !== undefined && { bytes: input }),
      signal,
    });
    // Frames have no lengths, so only the last one is certain: the exit code.
    if (answer.at(-2) !== EXIT_FRAME) {
      throw new SandboxError('unavailable', 'the sprite did not say how a command ended');
    }
    const output = answer
      .subarray(0, -2)
      .toString('utf8')
      .replaceAll(/\p{Cc}+/gu, ' ');
    return { exitCode: answer.at(-1) ?? 1, output: output.trim().slice(-300) };
  }

  /** A page of the list of sprites. @param how.size at most so many @throws SandboxError */
  async page(
    prefix: string,
    token: string | undefined,
    signal: AbortSignal,
    { patienceMs, size = PAGE }: { patienceMs?: number; size?: number } = {},
  ): Promise<{ names: string[]; next: string | undefined }> {
    const query = [
      ['prefix', prefix],
      ['max_results', String(size)],
      ...(token === undefined ? [] : [['continuation_token', token] as const]),
    ] as const;
    const patience = patienceMs === undefined ? {} : { patienceMs };
    const answer = await this.api
      .json({ method: 'GET', path: [], query, signal, ...patience })
      .catch((error: unknown) => {
        throw asSandboxError(error);
      });
    const { sprites, has_more: more, next_continuation_token: next } = answer;
    if (!Array.isArray(sprites)) {
      throw new SandboxError('unavailable', `${this.api.host} does not list sprites`);
    }
    const names = (sprites as { name?: unknown }[]).flatMap(({ name }) =>
      typeof name === 'string' ? [name] : [],
    );
    return { names, next: more === true && typeof next === 'string' ? next : undefined };
  }

  /** `no` only if the list of sprites confirms it: a wrong address also answers that there is no such thing. */
  async exists(sandboxId: string, signal: AbortSignal): Promise<Existence> {
    const name = this.names.of(sandboxId);
    const quick = { signal, patienceMs: SHORT_MS } as const;
    try {
      await this.api.request({ method: 'GET', path: [name], ...quick });
      return 'yes';
    } catch (error) {
      if (error instanceof SandboxError && error.kind === 'aborted') throw error;
      if (!(error instanceof SpritesError) || error.status !== 404) return 'unknown';
    }
    try {
      const listed = await this.page(name, undefined, signal, { patienceMs: SHORT_MS });
      return listed.names.includes(name) ? 'unknown' : 'no';
    } catch (error) {
      if (error instanceof SandboxError && error.kind === 'aborted') throw error;
      return 'unknown';
    }
  }

  /** Translates errors of requests about an existing sprite. */
  async inside<T>(sandboxId: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof SpritesError && error.status === 404) {
        await this.requireExistence(sandboxId, signal);
      }
      throw asSandboxError(error);
    }
  }

  /** @throws SandboxError `gone` if there is certainly no such sprite */
  private async requireExistence(sandboxId: string, signal: AbortSignal): Promise<void> {
    if ((await this.exists(sandboxId, signal)) === 'no') {
      throw new SandboxError('gone', 'the sandbox does not exist any more');
    }
  }
}
