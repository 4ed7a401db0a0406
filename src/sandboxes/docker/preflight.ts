import type Docker from 'dockerode';
import { SandboxError } from '../sandbox-error.js';
import { unless } from './engine.js';
import type { DockerSandboxOptions } from './options.js';

/** The oldest API that all of this was written for: Docker 20.10. */
const MIN_API = 1.41;
/** Processors as Node names them, by the engine's name. */
const ARCHITECTURES: Readonly<Record<string, string>> = { amd64: 'x64', arm64: 'arm64' };
/** What hardly ever changes is asked for this often. */
const INFO_VALID_MS = 60_000;

/** Asks an engine whether it can make sandboxes. */
export class Preflight {
  private askedAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly docker: Docker,
    private readonly options: DockerSandboxOptions,
  ) {}

  /** @returns the id of the image for sandboxes. @throws SandboxError `unavailable` with cause and way out */
  check(signal: AbortSignal): Promise<string> {
    return this.inTime(this.ask(), signal);
  }

  private async ask(): Promise<string> {
    if (Date.now() - this.askedAt > INFO_VALID_MS) {
      await this.checkEngine();
      this.askedAt = Date.now();
    }
    const { image } = this.options;
    const info = await this.docker
      .getImage(image)
      .inspect()
      .catch(unless([404], null));
    if (info !== null) return info.Id;
    throw new SandboxError(
      'unavailable',
      `the Docker engine has no image ${image}: build it with \`docker build -t ${image} -f sandbox/Dockerfile .\`, or set SANDBOX_IMAGE to one that is there`,
    );
  }

  private async checkEngine(): Promise<void> {
    const { ApiVersion, Arch, Os } = await this.docker.version();
    if (Number(ApiVersion) < MIN_API) {
      throw new SandboxError(
        'unavailable',
        `the Docker engine is too old (API ${ApiVersion}): 20.10 or newer is needed`,
      );
    }
    const own = process.platform === 'linux' ? process.arch : `${process.arch} ${process.platform}`;
    if (Os !== 'linux' || ARCHITECTURES[Arch] !== own) {
      throw new SandboxError(
        'unavailable',
        `the Docker engine runs ${Os}/${Arch} and the service linux/${own}: supervisors are the service's own programs, so run it where both are the same`,
      );
    }
    const { runtime } = this.options;
    if (runtime === undefined) return;
    const info = (await this.docker.info()) as {
      Runtimes?: Record<string, unknown>;
    };
    const runtimes = Object.keys(info.Runtimes ?? {});
    if (runtimes.includes(runtime)) return;
    throw new SandboxError(
      'unavailable',
      `the Docker engine has no runtime ${runtime}: set SANDBOX_RUNTIME to one of ${runtimes.join(', ')}`,
    );
  }

  /** The request is let go of: an engine that hangs may hang for ever. */
  private inTime<T>(answer: Promise<T>, signal: AbortSignal): Promise<T> {
    return new Promise((resolve, reject) => {
      const giveUp = (): void => {
        const { host } = this.options.engine;
        reject(
          new SandboxError('unavailable', `the Docker engine at ${host} does not answer in time`),
        );
      };
      signal.addEventListener('abort', giveUp, { once: true });
      if (signal.aborted) giveUp();
      answer.then(resolve, reject).finally(() => signal.removeEventListener('abort', giveUp));
    });
  }
}
