import { Inject, Injectable, Logger } from '@nestjs/common';
import { DomainError } from '../../common/errors.js';
import { AppConfig } from '../../config/app-config.js';
import type { SandboxDriver } from '../../sandboxes/driver/sandbox-driver.js';
import { SANDBOX_DRIVER, SandboxHost, type SandboxPlace } from '../../sandboxes/sandbox-host.js';
import { WorkersRepository } from '../../sessions/workers.repository.js';
import type { CallFiles } from '../../supervisor/files/file-access.js';
import type { FileCall, FileRoots } from '../../supervisor/files/file-call.js';
import { ConnectionLost } from '../../supervisor/protocol/call-client.js';
import type { Item } from '../../supervisor/protocol/frames.js';
import { SandboxError } from '../../supervisor/sandbox-error.js';
import { connectToWorker, type WorkerConnection } from './connect-to-worker.js';
import { WorkerTokens } from './worker-tokens.js';

export const NO_WORKER =
  'The files of this session are on another host, and no worker there can be asked for them';
export const NO_ANSWER =
  'The files of this session are on another host, and its worker does not answer';

const RETRY_SECONDS = 5;

/** How to access the files of one sandbox, for one call. */
export interface ReachedSandbox {
  layout: FileRoots;
  call: CallFiles;
}

/**
 * Reaches the files of sandboxes wherever they are: with the driver of this process, or through a worker that has them.
 */
@Injectable()
export class SandboxReach {
  private readonly logger = new Logger('Files');

  constructor(
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
    private readonly host: SandboxHost,
    private readonly config: AppConfig,
    private readonly workers: WorkersRepository,
    private readonly tokens: WorkerTokens,
  ) {}

  /** @throws DomainError `unavailable` if no worker of the sandbox's place can be reached */
  async find(sandbox: SandboxPlace & { id: string }): Promise<ReachedSandbox> {
    const { id, driver, host } = sandbox;
    const isHere = driver === this.driver.name && host === this.host.name;
    // An API process may have no access to the engine whose sandboxes every worker reaches.
    if (isHere && (host !== null || this.config.role !== 'api')) return this.direct(id);
    const addresses = await this.workers.addresses({ driver, host });
    if (addresses.length === 0) {
      if (isHere) return this.direct(id);
      throw unavailable(NO_WORKER);
    }
    return this.remote(id, addresses);
  }

  private direct(sandboxId: string): ReachedSandbox {
    return {
      layout: this.driver.layout(sandboxId),
      call: (call) => this.driver.files({ sandboxId, ...call }),
    };
  }

  private async remote(sandboxId: string, addresses: readonly string[]): Promise<ReachedSandbox> {
    const failures: unknown[] = [];
    for (const url of addresses) {
      try {
        const worker = await connectToWorker({ url, sandboxId }, this.tokens);
        return { layout: worker.layout, call: (call) => callWorker(worker, call) };
      } catch (error) {
        this.logger.warn(`The worker at ${url} cannot be reached: ${String(error)}`);
        failures.push(error);
      }
    }
    throw unavailable(NO_ANSWER, new AggregateError(failures, 'no worker can be reached'));
  }
}

function unavailable(sentence: string, cause?: unknown): DomainError {
  return new DomainError('unavailable', sentence, {}, { cause, retryAfterSeconds: RETRY_SECONDS });
}

/** One access; the connection ends with it. */
async function* callWorker(
  { connection }: WorkerConnection,
  { request, input, signal }: FileCall,
): AsyncGenerator<Item, void, undefined> {
  try {
    yield* connection.call({ name: 'files', parameters: { request }, input, signal });
  } catch (error) {
    if (!(error instanceof ConnectionLost)) throw error;
    throw new SandboxError('unavailable', NO_ANSWER, { cause: error });
  } finally {
    connection.close();
  }
}
