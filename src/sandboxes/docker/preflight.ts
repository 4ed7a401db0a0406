import type Docker from 'dockerode';
import { SandboxError } from '../sandbox-error.js';
import { unless } from './engine.js';
import type { DockerSandboxOptions } from './options.js';
import type { RuntimeTrial } from './runtime-trial.js';

/** The oldest API that all of this was written for: Docker 20.10. */
const MIN_API = 1.41;
/** Processors as Node names them, by the engine's name. */
const ARCHITECTURES: Readonly<Record<string, string>> = { amd64: 'x64', arm64: 'arm64' };
/** What hardly ever changes is asked for this often. */
const INFO_VALID_MS = 60_000;

/** A request that is let go of when its signal fires. */
interface Within {
  abortSignal: AbortSignal;
}

/** What the client takes here and its types do not say. */
interface Asking {
  version(within: Within): Promise<Docker.DockerVersion>;
  info(within: Within): Promise<{ Runtimes?: Record<string, unknown> }>;
  getImage(name: string): { inspect(within: Within): Promise<Docker.ImageInspectInfo> };
}

/** Asks an engine whether it can make sandboxes. */
export class Preflight {
  private askedAt = Number.NEGATIVE_INFINITY;

  private readonly docker: Asking;

  constructor(
    docker: Docker,
    private readonly options: DockerSandboxOptions,
    private readonly trial: RuntimeTrial,
  ) {
    this.docker = docker as unknown as Asking;
  }

  /** @returns the id of the image for sandboxes. @throws SandboxError `unavailable` with cause and way out */
  check(signal: AbortSignal): Promise<string> {
    return this.inTime(this.ask({ abortSignal: signal }), signal);
  }

  private async ask(within: Within): Promise<string> {
    if (Date.now() - this.askedAt > INFO_VALID_MS) {
      await this.checkEngine(within);
      this.askedAt = Date.now();
    }
    const { image } = this.options;
    const info = await this.docker
      .getImage(image)
      .inspect(within)
      .catch(unless([404], null));
    if (info !== null) {
      await this.trial.pass(info.Id);
      return info.Id;
    }
    throw new SandboxError(
      'unavailable',
      `the Docker engine has no image ${image}: build it with \`docker build -t ${image} -f sandbox/Dockerfile .\`, or set SANDBOX_IMAGE to one that is there`,
    );
  }

  private async checkEngine(within: Within): Promise<void> {
    const { ApiVersion, Arch, Os } = await this.docker.version(within);
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
    const info = await this.docker.info(within);
    const runtimes = Object.keys(info.Runtimes ?? {});
    if (runtimes.includes(runtime)) return;
    throw new SandboxError(
      'unavailable',
      `the Docker engine has no runtime ${runtime}: set SANDBOX_RUNTIME to one of ${runtimes.join(', ')}`,
    );
  }

  /** In words of ours, not of the client that was told to stop. */
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
