import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import type Docker from 'dockerode';
import { pack } from 'tar-stream';
import { certificateBundle } from '../certificates.js';
import { removeContainer } from './containers.js';
import { unless } from './engine.js';
import { CERTIFICATES_FILE, CERTIFICATES_MOUNT, LABELS, type Names } from './options.js';
import type { RuntimeOnEngine } from './runtime-on-engine.js';

const ROLE = 'certificates';

/** The volume with the certificates that programs in sandboxes trust, if the operator has added some. */
export class CertificatesOnEngine {
  /** Named after its contents; `undefined` if the operator has added none. */
  readonly volume: string | undefined;
  private readonly bundle: string | undefined;
  private installed: Promise<void> | undefined;

  /** @param company the certificates that the operator has added, each in PEM */
  constructor(
    private readonly docker: Docker,
    private readonly names: Names,
    private readonly runtime: RuntimeOnEngine,
    company: readonly string[] | undefined,
  ) {
    if (company === undefined) return;
    this.bundle = certificateBundle(company);
    this.volume = names.certificates(
      createHash('sha256').update(this.bundle).digest('hex').slice(0, 16),
    );
  }

  /** Creates the volume. The runtime's image must be there. */
  async ensure(): Promise<void> {
    const { bundle, volume } = this;
    if (bundle === undefined || volume === undefined) return;
    this.installed ??= this.install(Buffer.from(bundle), volume).catch((error: unknown) => {
      this.installed = undefined;
      throw error;
    });
    await this.installed;
  }

  private async install(bundle: Buffer, volume: string): Promise<void> {
    const labels = { [LABELS.installation]: this.names.installation, [LABELS.role]: ROLE };
    // Never started: it only gives access to the volume.
    const container = await this.docker.createContainer({
      Image: this.runtime.image,
      Labels: labels,
      Entrypoint: ['/never-started'],
      HostConfig: {
        NetworkMode: 'none',
        Mounts: [
          {
            Type: 'volume',
            Source: volume,
            Target: CERTIFICATES_MOUNT,
            VolumeOptions: {
              NoCopy: true,
              Labels: labels,
              DriverConfig: { Name: 'local', Options: {} },
            },
          },
        ],
      },
    });
    try {
      // Sandboxes may be reading the file, so it is not written again.
      if ((await sizeOf(container, CERTIFICATES_FILE)) === bundle.length) return;
      const archive = pack();
      archive.entry({ name: CERTIFICATES_FILE.slice(1), mode: 0o444 }, bundle);
      archive.finalize();
      await container.putArchive(Readable.from(archive), { path: '/' });
    } finally {
      await removeContainer(container);
    }
    await this.removeOld(volume);
  }

  /** Removes unused volumes with other certificates. */
  private async removeOld(current: string): Promise<void> {
    const { label } = this.names.filter();
    const filters = { label: [...label, `${LABELS.role}=${ROLE}`] };
    const { Volumes: volumes } = await this.docker.listVolumes({ filters });
    for (const { Name } of volumes ?? []) {
      if (Name === current) continue;
      await this.docker
        .getVolume(Name)
        .remove()
        .catch(unless([404, 409], undefined));
    }
  }
}

/** The size of a file in a container; `undefined` if there is none. */
async function sizeOf(container: Docker.Container, path: string): Promise<number | undefined> {
  const answer = (await container.infoArchive({ path }).catch(unless([404], undefined))) as
    { headers: Record<string, string | undefined> } | undefined;
  const stat = answer?.headers['x-docker-container-path-stat'];
  if (stat === undefined) return undefined;
  return (JSON.parse(Buffer.from(stat, 'base64').toString('utf8')) as { size: number }).size;
}
