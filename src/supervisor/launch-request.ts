import type { PrivateHost } from '../common/egress-network.js';
import type { NetworkPolicy } from './calls.js';
import type { ProcessIdentity } from './processes.js';
import type { LaunchGroups } from './confine.js';
import type { Gateway } from './relay/gateways.js';
import type { ListenerSpec } from './relay/listener-plan.js';
import type { GatewayLink } from './relay/relay-thread.js';
import type { SandboxLimits } from './sandbox-options.js';
import type { ChangedSince } from './limits/disk-usage.js';

/**
 * The request of the service to a supervisor, as JSON on standard input, so that the secrets in `environment` and
 * `stdin` appear neither in the process list nor in a file. Paths are as the supervisor sees them.
 */
export interface LaunchRequest {
  command: readonly string[];
  environment: Readonly<Record<string, string>>;
  stdin: string;
  cwd: string;
  /** Milliseconds since 1970. */
  deadline: number;
  /** Bytes of both streams together. */
  outputLimit: number;
  limits: SandboxLimits;
  /** The launch ends with this process; `null`: it outlives the process that started it. */
  owner: ProcessIdentity | null;
  /** Where to measure the use of disk space. */
  disk: CountedDisk;
  /** Folders that may be in memory, as the runtime sees them. They count towards the limit of memory. */
  scratchFolders: readonly string[];
  /** The seccomp program, base64. */
  seccomp: string;
  /** The control groups that the runtime joins; empty if the host has none for the service. */
  cgroups: LaunchGroups | null;
  /** Folders that the supervisor empties first, as far as this user has the permission. */
  clear?: { folders: readonly string[]; as: number };
  stage: StrictStage | PlainStage | ShimStage;
  /** Keeps the machine awake while the launch runs. Default: it never sleeps. */
  wake?: WakeTask;
}

/** A task that keeps a sprite awake, at the interface inside of it. */
export interface WakeTask {
  /** The unix socket of the interface. */
  socket: string;
  name: string;
}

/** The disk space of a sandbox: a file system of its own, or folders on a shared one. */
export type CountedDisk =
  | { kind: 'volume'; path: string }
  | {
      kind: 'folders';
      folders: readonly [string, ...string[]];
      /** The part of a container's own file system that has changed since the container was created. */
      changed?: ChangedSince;
    };

/**
 * In namespaces, by two nested bubblewraps: the outer one for the network and its relay, the inner one for the sandbox
 * itself.
 */
export interface StrictStage {
  kind: 'strict';
  /** bubblewrap with the arguments that create the outer namespaces. */
  nest: readonly [string, ...string[]];
  /** Arguments that create the sandbox, except for descriptors, the working directory and the environment. */
  sandbox: readonly string[];
  /** The program that confines the runtime, by its path in the sandbox. */
  confine: string;
  /** The program that makes the relay's listeners inside the outer namespaces. */
  listen: string;
  /** The relay's listeners, so that they can be made before the relay is loaded. */
  listeners: readonly ListenerSpec[];
  network: NetworkPolicy;
  gateways: readonly Gateway[];
  privateHosts: readonly PrivateHost[];
  /** Default: the relay connects by itself. */
  gateway?: GatewayLink | undefined;
}

/** Starts the runtime as a plain process. Used in containers, and where the operator has turned isolation off. */
export interface PlainStage {
  kind: 'plain';
  /** The program that confines the runtime. */
  confine: string;
  /** `setup` keeps the capabilities of root in a container; everything else drops all. */
  keepCapabilities: boolean;
  /** With `keepCapabilities`: drops those that root of a container does not have. Default: false. */
  containerRoot?: boolean;
  /** Folders that the runtime sees in the place of others: `[source, target]`. */
  binds?: readonly (readonly [string, string])[];
  /** Folders that the runtime cannot see. */
  hidden?: readonly string[];
  /** The kernel user of the sandbox; `null`: the supervisor's own. */
  uid: number | null;
  /** Whether to limit processes by user. Only works if the kernel user belongs to this sandbox alone. */
  limitProcesses: boolean;
}

/** Lets a shim start the runtime in another container, and measure its disk and memory there. */
export interface ShimStage {
  kind: 'shim';
  /** The socket of the program that passes calls to the shim. */
  socket: string;
  launchId: string;
  /** What the shim applies, with paths as it sees them. */
  stage: PlainStage;
}

/**
 * The supervisor's answer, one line of JSON on standard output: the launch runs (or ran before), or the reason why not.
 */
export type LaunchAnswer = { ok: true } | { ok: false; message: string };
