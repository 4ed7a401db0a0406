import type Docker from 'dockerode';
import type { NetworkPolicy } from '../sandbox-driver.js';
import { HOST_NAME } from '../shared/layout.js';
import { NAMESERVER } from '../shared/relay/listener-plan.js';
import type { RelaySetup } from './inside/relay-setup.js';
import { EGRESS_MOUNT, LABELS, type Names, type Role, RUNTIME_MOUNT } from './names.js';
import type { DockerSandboxOptions } from './options.js';
import { NOBODY, RELAY_STATE } from './runtime-bundle.js';
import type { RuntimeOnEngine } from './runtime-on-engine.js';
import { seccompProfile } from './seccomp-profile.js';

const MiB = 1024 * 1024;
/** For the supervisor and a follower, which are in the sandbox's group. */
const OWN_MEMORY = 192 * MiB;
const OWN_PROCESSES = 64;
const RELAY_MEMORY = 192 * MiB;
/**
 * gVisor's kernel is a process of the container, too: to the engine each process in it is several of the host's, and
 * the kernel ends, with the container, when it gets none. Taken for it: runtimes with its name.
 */
const GVISOR = /^runsc/;
const GVISOR_MEMORY = 256 * MiB;
const GVISOR_PROCESSES = { each: 6, own: 256 };

/** Keeps the container and collects what is left of processes. Ends at once when it is asked to. */
const IDLE = 'trap "exit 0" TERM; while :; do sleep 86400 & wait $!; done';
/**
 * What the supervisor needs to become the agent, to serve it, to tell its launches' processes apart (SYS_PTRACE, to read
 * their marks) and to end them; and what installing software takes.
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

/** Where a relay is spoken to. */
export const RELAY_CONTROL = `${RELAY_STATE}/control`;

const NO_RIGHTS = { CapDrop: ['ALL'], SecurityOpt: ['no-new-privileges'], Privileged: false };

export interface SandboxSpec {
  name: string;
  role: Role;
  sandboxId: string;
  image: string;
  /** The container whose network it shares. */
  relay: string;
  writableRoot: boolean;
  /** Volumes by where they are mounted. */
  volumes: Readonly<Record<string, string>>;
}

/** What the containers of an installation are made of. */
export class ContainerSpecs {
  private readonly seccomp = seccompProfile();

  constructor(
    private readonly options: DockerSandboxOptions,
    private readonly names: Names,
    private readonly runtime: RuntimeOnEngine,
  ) {}

  /** Holds the network namespace of a sandbox, which has nothing but loopback, and serves it. Runs only our own code. */
  relay(spec: {
    name: string;
    role: Role;
    sandboxId: string;
    network: NetworkPolicy;
  }): Docker.ContainerCreateOptions {
    const setup: RelaySetup = {
      policy: spec.network,
      gateways: this.options.gateways,
      egress: `${EGRESS_MOUNT}/socket`,
      policyFile: `${RELAY_STATE}/policy.json`,
      control: RELAY_CONTROL,
    };
    return {
      name: spec.name,
      Image: this.runtime.image,
      Labels: this.names.labels(spec.role, spec.sandboxId),
      Entrypoint: this.runtime.command('docker/inside/relay.js', JSON.stringify(setup)),
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
            Source: this.runtime.egressVolume,
            Target: EGRESS_MOUNT,
            ReadOnly: true,
          },
        ],
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
    return {
      name: spec.name,
      Image: spec.image,
      Labels: { ...labels, [LABELS.writableRoot]: String(spec.writableRoot) },
      Entrypoint: ['/bin/bash', '--norc', '-c', IDLE],
      Cmd: [],
      User: '0:0',
      WorkingDir: '/',
      StopTimeout: 1,
      HostConfig: {
        ...NO_RIGHTS,
        NetworkMode: `container:${spec.relay}`,
        CapAdd: spec.writableRoot ? [...RIGHTS, 'SETFCAP'] : RIGHTS,
        SecurityOpt: ['no-new-privileges', `seccomp=${this.seccomp}`],
        ReadonlyRootfs: !spec.writableRoot,
        IpcMode: 'private',
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
        Tmpfs: {
          '/tmp': `rw,exec,nosuid,nodev,mode=1777,size=${limits.tmpBytes}`,
          '/run': `rw,nosuid,nodev,mode=755,size=${Math.ceil(limits.tmpBytes / 16)}`,
          ...(spec.writableRoot
            ? {}
            : { '/var/tmp': `rw,exec,nosuid,nodev,mode=1777,size=${limits.tmpBytes}` }),
        },
        LogConfig: { Type: 'none', Config: {} },
        Mounts: [
          { Type: 'volume', Source: this.runtime.volume, Target: RUNTIME_MOUNT, ReadOnly: true },
          ...Object.entries(spec.volumes).map(([target, source]) => ({
            Type: 'volume' as const,
            Source: source,
            Target: target,
            ReadOnly: false,
            VolumeOptions: {
              NoCopy: false,
              Labels: this.names.labels('volume', spec.sandboxId),
              DriverConfig: { Name: 'local', Options: {} },
            },
          })),
        ],
      },
    };
  }
}
