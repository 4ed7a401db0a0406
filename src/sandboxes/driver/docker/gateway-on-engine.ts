import { createHash } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type Docker from 'dockerode';
import {
  configVariables,
  type GatewayConfig,
  type SharedGatewayConfig,
} from '../../../gateway/gateway-config.js';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import type { CertificatesOnEngine } from './certificates-on-engine.js';
import {
  ensureContainer,
  inspectContainer,
  removeContainer,
  startUntilReady,
} from './containers.js';
import { statusOf, unless } from './engine.js';
import { startExec, streamOf } from './exec.js';
import { GatewayWatch } from './gateway-watch.js';
import { GATEWAY_MOUNT, GATEWAY_SOCKET, LABELS, type Names } from './options.js';
import { NOBODY } from './runtime-bundle.js';
import type { RuntimeOnEngine } from './runtime-on-engine.js';

const PROGRAM = 'gateway/main.js';
const PIPE = 'sandboxes/driver/docker/inside/gateway-pipe.js';
/** The gateway exits when no relay has been connected for this long. */
const IDLE_MS = 600_000;
const MiB = 2 ** 20;
/** Most of it is for bytes that wait to be sent, which are not on the heap. */
const MEMORY = 768 * MiB;
const HEAP_MIB = 192;
/** Threads count as processes, and each worker that is connected has a process here. */
const PROCESSES = 512;
const LOG = { 'max-size': '16m', 'max-file': '2' };
const ATTEMPTS = 10;
const MAX_RETRY_MS = 500;
const DEFAULT_NETWORK = 'host';

/**
 * The gateway of an installation on an engine, in a container. It has the installation's keys, so installations do not
 * share it. Its socket is in a volume that stays the same across versions. A container with another program or
 * configuration takes over the socket; the earlier one is set aside and exits when its connections have ended.
 */
export class GatewayOnEngine {
  private readonly name: string;
  private readonly network: string;
  private readonly config: GatewayConfig;
  private ensuring: Promise<void> | undefined;
  /**
   * Only the first time, because two services of different versions would otherwise replace each other's gateway. Never
   * for a command, which has no keys.
   */
  private mayReplace: boolean;
  private readonly watch: GatewayWatch;

  constructor(
    private readonly docker: Docker,
    private readonly names: Names,
    private readonly runtime: RuntimeOnEngine,
    private readonly certificates: CertificatesOnEngine,
    options: { network: string | undefined; config: SharedGatewayConfig },
  ) {
    this.name = names.gateway;
    this.network = options.network ?? DEFAULT_NETWORK;
    const config = { ...options.config, socket: GATEWAY_SOCKET, idleMs: IDLE_MS, user: null };
    const hash = createHash('sha256').update(JSON.stringify([this.network, config]));
    const version = hash.update(runtime.image).digest('hex').slice(0, 16);
    this.config = { ...config, version };
    this.mayReplace = config.grantKeys.length > 0;
    this.watch = new GatewayWatch({
      docker,
      name: this.name,
      isOwn: (there) => this.isOwn(there),
      start: () => this.ensure(),
    });
  }

  /** Creates what all sandboxes need, and starts the gateway unless it runs. @throws SandboxError; errors of the engine */
  ensure(): Promise<void> {
    this.ensuring ??= this.ensureOnce().finally(() => (this.ensuring = undefined));
    return this.ensuring;
  }

  /** Connects to the gateway, with the protocol of gateway/protocol.ts. @throws SandboxError if none runs */
  async connect(): Promise<Duplex> {
    const container = this.docker.getContainer(this.name);
    const user = `${NOBODY}:${NOBODY}`;
    return streamOf(
      await startExec(container, { command: this.runtime.command(PIPE, GATEWAY_SOCKET), user }),
    );
  }

  /** Stops watching the gateway, which goes on. */
  async close(): Promise<void> {
    await this.watch.close();
  }

  private async ensureOnce(): Promise<void> {
    await this.runtime.ensure();
    await this.certificates.ensure();
    // Other processes may do the same at the same time, and a gateway without connections may be exiting.
    for (let attempt = 1; ; attempt += 1) {
      const there = await inspectContainer(this.docker.getContainer(this.name));
      try {
        if (!(await this.isInPlace(there))) await this.start();
        this.mayReplace = false;
        this.watch.begin();
        return;
      } catch (error) {
        if (statusOf(error) === undefined && !(error instanceof SandboxError)) throw error;
        if (attempt < ATTEMPTS) {
          await delay(Math.random() * MAX_RETRY_MS);
          continue;
        }
        await this.removeBroken();
        // Not `failed`: launches that run may need it, and are not over because of this.
        const cause = (error as Error).message;
        throw new SandboxError('unavailable', `the gateway does not run: ${cause}`, {
          cause: error,
        });
      }
    }
  }

  /** Whether the gateway runs. Otherwise, makes room for a new container. */
  private async isInPlace(there: Docker.ContainerInspectInfo | null): Promise<boolean> {
    if (there === null) return false;
    const isOwn = this.isOwn(there);
    const { Running, Restarting, Status } = there.State;
    if (Running && (isOwn ? !Restarting : !this.mayReplace)) return true;
    const container = this.docker.getContainer(there.Id);
    if (Running && !Restarting) await this.setAside(container);
    // Another process is about to start a container that was only created.
    else if (Status !== 'created' || !isOwn) await removeContainer(container);
    return false;
  }

  private isOwn({ Config }: Docker.ContainerInspectInfo): boolean {
    return Config.Labels[LABELS.version] === this.config.version;
  }

  /** The container keeps its connections. It must not start again: it would take the socket back. */
  private async setAside(container: Docker.Container): Promise<void> {
    await container.update({ RestartPolicy: { Name: 'no' } });
    const name = `${this.name}-${container.id.slice(0, 12)}`;
    // Another process may have done it already.
    await container.rename({ name }).catch(unless([400, 409], undefined));
  }

  private async start(): Promise<void> {
    await startUntilReady(await ensureContainer(this.docker, this.spec()), 'the gateway');
    await this.removeExited();
  }

  /** Removes containers that were set aside and have exited. */
  private async removeExited(): Promise<void> {
    const { label } = this.names.filter();
    const filters = { label: [...label, `${LABELS.role}=gateway`], status: ['exited'] };
    for (const { Id } of await this.docker.listContainers({ all: true, filters }))
      await removeContainer(this.docker.getContainer(Id));
  }

  /** The engine would otherwise restart it forever. */
  private async removeBroken(): Promise<void> {
    const there = await inspectContainer(this.docker.getContainer(this.name));
    if (there === null || !this.isOwn(there)) return;
    await removeContainer(this.docker.getContainer(there.Id)).catch(unless([404], undefined));
  }

  private spec(): Docker.ContainerCreateOptions {
    const labels = {
      [LABELS.installation]: this.names.installation,
      [LABELS.role]: 'gateway',
    };
    return {
      name: this.name,
      Image: this.runtime.image,
      Labels: { ...labels, [LABELS.version]: this.config.version },
      Entrypoint: this.runtime.gatewayCommand(PROGRAM, HEAP_MIB),
      // The keys must not be in the arguments or labels, which are shown in many places.
      Env: Object.entries(configVariables(this.config)).map(([name, value]) => `${name}=${value}`),
      User: `${NOBODY}:${NOBODY}`,
      HostConfig: {
        // Restarts a gateway that was killed, because running sandboxes wait for it. A gateway without connections
        // exits with 0 and is not restarted.
        RestartPolicy: { Name: 'on-failure' },
        NetworkMode: this.network,
        CapDrop: ['ALL'],
        SecurityOpt: ['no-new-privileges'],
        ReadonlyRootfs: true,
        Memory: MEMORY,
        MemorySwap: MEMORY,
        PidsLimit: PROCESSES,
        LogConfig: { Type: 'json-file', Config: LOG },
        Mounts: [
          {
            Type: 'volume',
            Source: this.name,
            Target: GATEWAY_MOUNT,
            VolumeOptions: {
              NoCopy: false,
              Labels: labels,
              DriverConfig: { Name: 'local', Options: {} },
            },
          },
        ],
      },
    };
  }
}
