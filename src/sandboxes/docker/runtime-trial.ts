import type Docker from 'dockerode';
import { SandboxError } from '../sandbox-error.js';
import { runContainer } from './containers.js';
import { statusOf, translate } from './engine.js';
import type { Names } from './names.js';
import type { DockerSandboxOptions } from './options.js';

/** A child, a pipe, and what `ls` asks of a kernel: all that is needed to find one that is not up to the image. */
const TRIAL = 'ls -d / | cat && ls -d / >/dev/null';

/**
 * Whether another runtime than the engine's own runs the programs of an image. A kernel that is not Linux may lack what
 * they ask of it, and a sandbox in which not even `ls` works helps nobody. Tried once for each image.
 */
export class RuntimeTrial {
  private readonly tried = new Map<string, Promise<void>>();

  constructor(
    private readonly docker: Docker,
    private readonly names: Names,
    private readonly options: DockerSandboxOptions,
  ) {}

  /** @throws SandboxError `unavailable` with the program's or the runtime's complaint */
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
