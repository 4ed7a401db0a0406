import type Docker from 'dockerode';
import type { CertificatesOnEngine } from './certificates-on-engine.js';
import type { NetworkPolicy } from '../sandbox-driver.js';
import { HOST_NAME } from '../../../supervisor/sandbox-options.js';
import { NAMESERVER } from '../../../supervisor/relay/listener-plan.js';
import type { RelaySetup } from './inside/relay-setup.js';
import { quotaFor, type Quotas } from './preflight.js';
import {
  CERTIFICATES_MOUNT,
  GATEWAY_MOUNT,
  GATEWAY_SOCKET,
  LABELS,
  type Names,
  type Role,
  RUNTIME_MOUNT,
  SPOOL,
  type DockerSandboxOptions,
} from './options.js';
import { NOBODY, RELAY_STATE } from './runtime-bundle.js';
import type { RuntimeOnEngine } from './runtime-on-engine.js';

const MiB = 1024 * 1024;
/** Memory for the supervisor and a follower, which are in the sandbox's group. */
const OWN_MEMORY = 192 * MiB;
const OWN_PROCESSES = 64;
const RELAY_MEMORY = 192 * MiB;
/**
 * gVisor's kernel is a process of the container, too: each process in it counts as several for the engine, and the
 * kernel ends, with the container, when it cannot create any more. A runtime counts as gVisor by its name.
 */
const GVISOR = /^runsc/;
const GVISOR_MEMORY = 256 * MiB;
const GVISOR_PROCESSES = { each: 6, own: 256 };

/**
 * The capabilities that the supervisor needs to change to the agent's user, to serve it, to count its memory
 * (SYS_PTRACE) and to kill it, and those that installing software needs.
 */
const RIGHTS = [
  'CHOWN',
  'DAC_OVERRIDE',
  'FOWNER',
  'KILL',
  'SETGID',
  'SETPCAP',
  'SETUID',
  'SYS_PTRACE',
];

/**
 * System V memory and messages outlive the processes that created them, and nothing would remove those of a container
 * before its next turn: at its memory limit, the container's own programs would thrash, reading their code from disk
 * again and again. So memory that no process has attached is freed at once, and the number of queues is small.
 */
const PRIVATE_IPC = { 'kernel.shm_rmid_forced': '1', 'kernel.msgmni': '32' };

/** The folder of a relay's control socket. */
export const RELAY_CONTROL = `${RELAY_STATE}/control`;

const NO_RIGHTS = { CapDrop: ['ALL'], SecurityOpt: ['no-new-privileges'], Privileged: false };

export interface SandboxSpec {
  name: string;
  role: Role;
  sandboxId: string;
  image: string;
  /** The container whose network namespace it shares. */
  relay: string;
  writableRoot: boolean;
  quotas: Quotas;
  /** Volume names by mount path; '': a new anonymous volume. */
  volumes: Readonly<Record<string, string>>;
}

/** The configuration that all containers of an installation share. */
export class ContainerSpecs {
  constructor(
    private readonly options: DockerSandboxOptions,
    private readonly names: Names,
    private readonly runtime: RuntimeOnEngine,
    private readonly certificates: CertificatesOnEngine,
  ) {}

  /**
   * The relay's container. It holds the sandbox's network namespace, which has only loopback, and serves it. Runs only
   * our own code.
   */
  relay(spec: {
    name: string;
    role: Role;
    sandboxId: string;
    network: NetworkPolicy;
  }): Docker.ContainerCreateOptions {
    const setup: RelaySetup = {
      policy: spec.network,
      gateways: this.options.gateways,
      privateHosts: this.options.gatewayConfig.network?.privateHosts,
      gateway: GATEWAY_SOCKET,
      sandboxId: spec.sandboxId,
      policyFile: `${RELAY_STATE}/policy.json`,
      control: RELAY_CONTROL,
    };
    return {
      name: spec.name,
      Image: this.runtime.image,
      Labels: this.names.labels(spec.role, spec.sandboxId),
      Entrypoint: this.runtime.command(
        'sandboxes/driver/docker/inside/relay.js',
        JSON.stringify(setup),
      ),
      User: `${NOBODY}:${NOBODY}`,
      Hostname: HOST_NAME,
      HostConfig: {
        ...NO_RIGHTS,
        NetworkMode: 'none',
        Dns: [NAMESERVER],
        DnsOptions: ['timeout:5', 'attempts:2'],
        Memory: RELAY_MEMORY,
        MemorySwap: RELAY_MEMORY,
        PidsLimit: OWN_PROCESSES,
        LogConfig: { Type: 'json-file', Config: { 'max-size': '1m', 'max-file': '1' } },
        Mounts: [
          {
            Type: 'volume',
            Source: this.names.gateway,
            Target: GATEWAY_MOUNT,
            ReadOnly: true,
          },
        ],
      },
    };
  }

  /** A container that counts the bytes in volumes, and ends when they exceed the limit. */
  counter(spec: {
    name: string;
    labels: Record<string, string>;
    volumes: readonly string[];
  }): Docker.ContainerCreateOptions {
    const folders = spec.volumes.map((source, i) => ({ source, target: `/counted/${i}` }));
    return {
      name: spec.name,
      Image: this.runtime.image,
      Labels: spec.labels,
      Entrypoint: this.runtime.command(
        'sandboxes/driver/docker/inside/count.js',
        quotaFor(this.options.limits.diskBytes),
        ...folders.map(({ target }) => target),
      ),
      User: '0:0',
      HostConfig: {
        ...NO_RIGHTS,
        CapAdd: ['DAC_READ_SEARCH'],
        NetworkMode: 'none',
        Memory: OWN_MEMORY,
        MemorySwap: OWN_MEMORY,
        PidsLimit: OWN_PROCESSES,
        LogConfig: { Type: 'none', Config: {} },
        Mounts: folders.map(({ source, target }) => ({
          Type: 'volume' as const,
          Source: source,
          Target: target,
          ReadOnly: true,
        })),
      },
    };
  }

  /** The agent's own container. */
  sandbox(spec: SandboxSpec): Docker.ContainerCreateOptions {
    const { limits, cpus, runtime } = this.options;
    const isGvisor = GVISOR.test(runtime ?? '');
    const memory = limits.memoryBytes + OWN_MEMORY + (isGvisor ? GVISOR_MEMORY : 0);
    const processes = limits.processes + OWN_PROCESSES;
    const labels = this.names.labels(spec.role, spec.sandboxId);
    const size = quotaFor(limits.diskBytes);
    return {
      name: spec.name,
      Image: spec.image,
      Labels: { ...labels, [LABELS.writableRoot]: String(spec.writableRoot) },
      // Keeps the container running and reaps orphaned processes. Does not use the image's programs, because a setup
      // script may have written them.
      Entrypoint: [this.runtime.confine, '--idle'],
      Cmd: [],
      User: '0:0',
      WorkingDir: '/',
      StopTimeout: 1,
      HostConfig: {
        ...NO_RIGHTS,
        NetworkMode: `container:${spec.relay}`,
        CapAdd: spec.writableRoot ? [...RIGHTS, 'SETFCAP'] : RIGHTS,
        // In addition to the engine's filter for the container, launches have the filter of all drivers.
        SecurityOpt: ['no-new-privileges'],
        ReadonlyRootfs: !spec.writableRoot,
        IpcMode: 'private',
        Sysctls: PRIVATE_IPC,
        Memory: memory,
        MemorySwap: memory,
        PidsLimit: isGvisor ? processes * GVISOR_PROCESSES.each + GVISOR_PROCESSES.own : processes,
        ...(cpus === undefined ? {} : { NanoCpus: Math.round(cpus * 1e9) }),
        ...(runtime === undefined ? {} : { Runtime: runtime }),
        ShmSize: limits.tmpBytes,
        Ulimits: [
          { Name: 'nofile', Soft: limits.openFiles, Hard: limits.openFiles },
          { Name: 'core', Soft: 0, Hard: 0 },
        ],
        Tmpfs: { '/run': `rw,nosuid,nodev,mode=755,size=${Math.ceil(limits.tmpBytes / 16)}` },
        ...(spec.writableRoot && spec.quotas.containers ? { StorageOpt: { size } } : {}),
        LogConfig: { Type: 'none', Config: {} },
        Mounts: [
          { Type: 'volume', Source: this.runtime.volume, Target: RUNTIME_MOUNT, ReadOnly: true },
          ...this.certificateMounts(),
          ...Object.entries(spec.volumes).map(([target, source]) => ({
            Type: 'volume' as const,
            Source: source,
            Target: target,
            ReadOnly: false,
            VolumeOptions: {
              NoCopy: false,
              Labels: this.names.labels('volume', spec.sandboxId),
              DriverConfig: {
                Name: 'local',
                Options:
                  spec.quotas.volumes && target !== SPOOL ? { size } : ({} as { size: string }),
              },
            },
          })),
        ],
      },
    };
  }

  private certificateMounts(): Docker.MountSettings[] {
    const { volume } = this.certificates;
    if (volume === undefined) return [];
    return [{ Type: 'volume', Source: volume, Target: CERTIFICATES_MOUNT, ReadOnly: true }];
  }
}
