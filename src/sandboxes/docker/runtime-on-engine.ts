import { createHash } from 'node:crypto';
import type Docker from 'dockerode';
import { SandboxError } from '../sandbox-error.js';
import {
  ensureContainer,
  inspectContainer,
  removeContainer,
  runContainer,
  startUntilReady,
} from './containers.js';
import { unless } from './engine.js';
import { EGRESS_MOUNT, LABELS } from './names.js';
import { NOBODY, type RuntimeBundle } from './runtime-bundle.js';

const REPOSITORY = 'agent-session-runtime';
const EGRESS_IDLE_MS = 600_000;
const EGRESS_MEMORY = 512 * 1024 * 1024;
const EGRESS_ATTEMPTS = 5;
const KEEP_OLD_MS = 24 * 3600 * 1000;

/**
 * What all installations on an engine share, named for what is in it: the image and the volume with the programs of
 * supervisors and relays, and the egress. Made when they are missing; the egress ends by itself when nobody needs it.
 */
export class RuntimeOnEngine {
  readonly image: string;
  readonly volume: string;
  readonly egressVolume: string;
  private readonly egressName: string;
  private installed: Promise<void> | undefined;

  constructor(
    private readonly docker: Docker,
    private readonly bundle: RuntimeBundle,
    private readonly egressNetwork: string,
  ) {
    const { digest } = bundle;
    this.image = `${REPOSITORY}:${digest}`;
    this.volume = `${REPOSITORY}-${digest}`;
    const network = createHash('sha256').update(egressNetwork).digest('hex').slice(0, 8);
    this.egressName = `agent-session-egress-${digest}-${network}`;
    this.egressVolume = this.egressName;
  }

  command(program: string, ...args: readonly string[]): string[] {
    return this.bundle.command(program, ...args);
  }

  /** Makes what is not there. */
  async ensure(): Promise<void> {
    // Another installation, with another build, may have taken it for one that nobody needs.
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
    await this.ensureEgress();
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
      Entrypoint: this.command('docker/inside/install.js', this.bundle.folder, '/volume'),
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

  /** What other builds have left on the engine and nothing uses any more. */
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

  /** Beside others doing the same, and while one ends for being idle. */
  private async ensureEgress(): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      const container = this.docker.getContainer(this.egressName);
      const there = await inspectContainer(container);
      if (there?.State.Running) return;
      try {
        if (there !== null) await removeContainer(container);
        await startUntilReady(await ensureContainer(this.docker, this.egress()), 'the egress');
        return;
      } catch (error) {
        if (attempt === EGRESS_ATTEMPTS) throw error;
      }
    }
  }

  private egress(): Docker.ContainerCreateOptions {
    const socket = `${EGRESS_MOUNT}/socket`;
    return {
      name: this.egressName,
      Image: this.image,
      Labels: { [LABELS.role]: 'egress' },
      Entrypoint: this.command('docker/inside/egress.js', socket, String(EGRESS_IDLE_MS)),
      User: `${NOBODY}:${NOBODY}`,
      HostConfig: {
        AutoRemove: true,
        NetworkMode: this.egressNetwork,
        CapDrop: ['ALL'],
        SecurityOpt: ['no-new-privileges'],
        ReadonlyRootfs: true,
        Memory: EGRESS_MEMORY,
        MemorySwap: EGRESS_MEMORY,
        Mounts: [
          {
            Type: 'volume',
            Source: this.egressVolume,
            Target: EGRESS_MOUNT,
            VolumeOptions: {
              NoCopy: false,
              Labels: { [LABELS.role]: 'egress' },
              DriverConfig: { Name: 'local', Options: {} },
            },
          },
        ],
      },
    };
  }
}
