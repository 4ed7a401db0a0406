import type Docker from 'dockerode';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { runContainer } from './containers.js';
import { statusOf, translate, unless, inTime } from './engine.js';
import type { Names, DockerSandboxOptions } from './options.js';
import { randomUUID } from 'node:crypto';
import type { DiskLimit } from '../sandbox-driver.js';
import { SingleFlight } from '../single-flight.js';

/** A child process, a pipe and the system calls of `ls`: enough to detect a kernel that cannot run the image. */
const TRIAL = 'ls -d / | cat && ls -d / >/dev/null';

/**
 * Checks that a configured runtime (not the engine's default) can run the programs of an image. Its kernel may not be
 * Linux and lack system calls that even `ls` needs. Runs once for each image.
 */
export class RuntimeTrial {
  private readonly tried = new Map<string, Promise<void>>();

  constructor(
    private readonly docker: Docker,
    private readonly names: Names,
    private readonly options: DockerSandboxOptions,
  ) {}

  /** @throws SandboxError `unavailable` with the message of the program or the runtime */
  async pass(image: string): Promise<void> {
    const { runtime } = this.options;
    if (runtime === undefined) return;
    const trial = this.tried.get(image) ?? this.run(image, runtime);
    this.tried.set(image, trial);
    try {
      await trial;
    } catch (error) {
      this.tried.delete(image);
      throw error;
    }
  }

  private async run(image: string, runtime: string): Promise<void> {
    const { exitCode, output } = await runContainer(this.docker, {
      Image: image,
      Labels: this.names.labels('build', ''),
      Entrypoint: ['/bin/sh', '-c', TRIAL],
      Cmd: [],
      HostConfig: {
        Runtime: runtime,
        NetworkMode: 'none',
        CapDrop: ['ALL'],
        SecurityOpt: ['no-new-privileges'],
      },
    }).catch((error: unknown) => {
      if (statusOf(error) === undefined) throw error;
      return { exitCode: null, output: translate(error, this.options.engine.host).message };
    });
    if (exitCode === 0) return;
    throw new SandboxError(
      'unavailable',
      `the runtime ${runtime} does not run the programs of ${this.options.image}: ${output.slice(-300)}`,
    );
  }
}

const MiB = 2 ** 20;
/** Space above the limit, so that the supervisor stops a sandbox with a clear message before the quota is full. */
const MARGIN = { share: 8, least: 64 * MiB };

/** The quotas that the engine can enforce. */
export interface Quotas {
  /** Limits volumes of the `local` driver, by project quota. */
  volumes: boolean;
  /** Limits what a container writes to its own file system. */
  containers: boolean;
}

/** Finds out once whether the engine's storage supports quotas, by creating a volume and a container with one. */
export class EngineQuotas {
  private known: Promise<Quotas> | undefined;

  constructor(
    private readonly docker: Docker,
    private readonly names: Names,
  ) {}

  /** @param image any image that is on the engine */
  supported(image: string): Promise<Quotas> {
    this.known ??= this.probe(image).catch((error: unknown) => {
      this.known = undefined;
      throw error;
    });
    return this.known;
  }

  /** How this engine limits the disk of sandboxes, for reports. */
  async limit(image: string): Promise<DiskLimit> {
    const { volumes, containers } = await this.supported(image);
    if (volumes && containers) return { kind: 'hard', by: "quotas of the engine's storage" };
    const lacking = [...(volumes ? [] : ['volumes']), ...(containers ? [] : ['containers'])].join(
      ' and ',
    );
    return {
      kind: 'monitored',
      by: `counting (the engine's storage has no quotas for ${lacking})`,
    };
  }

  private async probe(image: string): Promise<Quotas> {
    const name = this.names.volume(randomUUID(), 'quota-probe');
    const Labels = this.names.labels('build', '');
    const volumes = await accepted(async () => {
      await this.docker.createVolume({
        Name: name,
        Labels,
        DriverOpts: { size: String(16 * MiB) },
      });
      await this.docker
        .getVolume(name)
        .remove()
        .catch(unless([404], undefined));
    });
    const containers = await accepted(async () => {
      const container = await this.docker.createContainer({
        name,
        Image: image,
        Labels,
        Entrypoint: ['/bin/true'],
        HostConfig: { NetworkMode: 'none', StorageOpt: { size: String(1024 * MiB) } },
      });
      await container.remove({ force: true }).catch(unless([404], undefined));
    });
    return { volumes, containers };
  }
}

/** The quota for a given limit. */
export function quotaFor(limitBytes: number): string {
  return String(Math.ceil(limitBytes + Math.max(limitBytes / MARGIN.share, MARGIN.least)));
}

/** Whether the engine accepted the request. Throws if the engine does not answer. */
async function accepted(request: () => Promise<void>): Promise<boolean> {
  try {
    await request();
    return true;
  } catch (error) {
    if (statusOf(error) === undefined) throw error;
    return false;
  }
}

/** The oldest supported API version: Docker 20.10. */
const MIN_API = 1.41;
/** Node's names of processor architectures by the engine's names. */
const ARCHITECTURES: Readonly<Record<string, string>> = { amd64: 'x64', arm64: 'arm64' };
/** How long responses that rarely change are cached. */
const INFO_VALID_MS = 60_000;

/** Options of a request that ends when its signal fires. */
interface Within {
  abortSignal: AbortSignal;
}

/** The client accepts these options, but its types do not declare them. */
interface Asking {
  version(bounds: Within): Promise<Docker.DockerVersion>;
  info(bounds: Within): Promise<{ Runtimes?: Record<string, unknown> }>;
  getImage(name: string): { inspect(bounds: Within): Promise<Docker.ImageInspectInfo> };
}

/** Checks whether an engine can run sandboxes. */
export class Preflight {
  private askedAt = Number.NEGATIVE_INFINITY;
  private readonly flight = new SingleFlight<string>();

  private readonly docker: Asking;

  constructor(
    docker: Docker,
    private readonly options: DockerSandboxOptions,
    private readonly trial: RuntimeTrial,
  ) {
    this.docker = docker as unknown as Asking;
  }

  /** @returns the id of the image for sandboxes. @throws SandboxError `unavailable` with the cause and a remedy */
  check(signal: AbortSignal): Promise<string> {
    const { host } = this.options.engine;
    const answer = this.flight.run(signal, (abortSignal) => this.ask({ abortSignal }));
    return inTime(answer, { host, signal });
  }

  private async ask(bounds: Within): Promise<string> {
    if (Date.now() - this.askedAt > INFO_VALID_MS) {
      await this.checkEngine(bounds);
      this.askedAt = Date.now();
    }
    const { image } = this.options;
    const info = await this.docker
      .getImage(image)
      .inspect(bounds)
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

  private async checkEngine(bounds: Within): Promise<void> {
    const { ApiVersion, Arch, Os } = await this.docker.version(bounds);
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
    const info = await this.docker.info(bounds);
    const runtimes = Object.keys(info.Runtimes ?? {});
    if (runtimes.includes(runtime)) return;
    throw new SandboxError(
      'unavailable',
      `the Docker engine has no runtime ${runtime}: set SANDBOX_RUNTIME to one of ${runtimes.join(', ')}`,
    );
  }
}
