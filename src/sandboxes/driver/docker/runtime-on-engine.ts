import type Docker from 'dockerode';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { removeContainer, runContainer } from './containers.js';
import { unless } from './engine.js';
import { LABELS } from './options.js';
import type { RuntimeBundle } from './runtime-bundle.js';

const REPOSITORY = 'agent-session-runtime';
const KEEP_OLD_MS = 24 * 3600 * 1000;

/** What earlier versions had instead of the gateway. */
const EGRESS = `${LABELS.role}=egress`;

/**
 * The objects that all installations on an engine share, named after their contents: the image and the volume with the
 * programs of supervisors, relays and gateways. They are created when missing.
 */
export class RuntimeOnEngine {
  readonly image: string;
  readonly volume: string;
  private installed: Promise<void> | undefined;

  constructor(
    private readonly docker: Docker,
    private readonly bundle: RuntimeBundle,
  ) {
    const { digest } = bundle;
    this.image = `${REPOSITORY}:${digest}`;
    this.volume = `${REPOSITORY}-${digest}`;
  }

  command(program: string, ...args: readonly string[]): string[] {
    return this.bundle.command(program, ...args);
  }

  nodeCommand(program: string): string[] {
    return this.bundle.nodeCommand(program);
  }

  gatewayCommand(program: string, heapMiB: number): string[] {
    return this.bundle.gatewayCommand(program, heapMiB);
  }

  /** The path of the program that confines agents in containers. */
  get confine(): string {
    return this.bundle.confine;
  }

  /** Creates missing objects. */
  async ensure(): Promise<void> {
    // Another installation with another build may have removed it as unused.
    const volume = await this.docker
      .getVolume(this.volume)
      .inspect()
      .catch(unless([404], null));
    if (volume === null) this.installed = undefined;
    this.installed ??= this.install().catch((error: unknown) => {
      this.installed = undefined;
      throw error;
    });
    await this.installed;
  }

  private async install(): Promise<void> {
    const there = await this.docker
      .getImage(this.image)
      .inspect()
      .catch(unless([404], null));
    if (there === null) await this.importImage();
    const { exitCode, output } = await runContainer(this.docker, {
      Image: this.image,
      Labels: { [LABELS.role]: 'runtime' },
      Entrypoint: this.command(
        'sandboxes/driver/docker/inside/install.js',
        this.bundle.folder,
        '/volume',
      ),
      HostConfig: {
        NetworkMode: 'none',
        CapDrop: ['ALL'],
        Mounts: [
          {
            Type: 'volume',
            Source: this.volume,
            Target: '/volume',
            VolumeOptions: {
              NoCopy: true,
              Labels: { [LABELS.role]: 'runtime' },
              DriverConfig: { Name: 'local', Options: {} },
            },
          },
        ],
      },
    });
    if (exitCode !== 0) {
      throw new SandboxError(
        'failed',
        `the engine does not run supervisors: ${output.slice(-300)}`,
      );
    }
    await this.removeOld();
  }

  /** Removes unused objects of other builds from the engine. */
  private async removeOld(): Promise<void> {
    const before = Date.now() - KEEP_OLD_MS;
    const filters = { label: [`${LABELS.role}=runtime`] };
    const { Volumes: volumes } = await this.docker.listVolumes({ filters });
    for (const volume of (volumes ?? []) as (Docker.VolumeInspectInfo & { CreatedAt?: string })[]) {
      if (volume.Name === this.volume || !(Date.parse(volume.CreatedAt ?? '') < before)) continue;
      await this.docker
        .getVolume(volume.Name)
        .remove()
        .catch(unless([404, 409], undefined));
    }
    await this.removeOldEgress();
    for (const { RepoTags, Created } of await this.docker.listImages({ filters })) {
      for (const tag of RepoTags ?? []) {
        if (tag === this.image || Created * 1000 > before) continue;
        await this.docker
          .getImage(tag)
          .remove()
          .catch(unless([404, 409], undefined));
      }
    }
  }

  /** Removes those without a relay. The volumes of the others are in use. */
  private async removeOldEgress(): Promise<void> {
    const exited = { label: [EGRESS], status: ['exited'] };
    for (const { Id } of await this.docker.listContainers({ all: true, filters: exited })) {
      await removeContainer(this.docker.getContainer(Id));
    }
    const { Volumes: volumes } = await this.docker.listVolumes({ filters: { label: [EGRESS] } });
    for (const { Name } of volumes ?? []) {
      await this.docker
        .getVolume(Name)
        .remove()
        .catch(unless([404, 409], undefined));
    }
  }

  private async importImage(): Promise<void> {
    const [repo, tag] = this.image.split(':');
    const progress = await this.docker.importImage(this.bundle.archive(), {
      repo,
      tag,
      changes: `LABEL ${LABELS.role}=runtime`,
    });
    for await (const line of progress as AsyncIterable<Buffer>) {
      const { error } = JSON.parse(line.toString().split('\n')[0] ?? '{}') as { error?: string };
      if (error !== undefined) {
        throw new SandboxError('failed', `the engine does not take an image: ${error}`);
      }
    }
  }
}
