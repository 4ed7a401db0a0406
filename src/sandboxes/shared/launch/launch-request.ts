import type { NetworkPolicy } from '../../sandbox-driver.js';
import type { ProcessIdentity } from './process-identity.js';
import type { Gateway } from '../relay/gateways.js';
import type { SandboxLimits } from '../sandbox-options.js';

/**
 * What the service tells a supervisor, as JSON on its standard input: that way neither the process list nor a file ever
 * holds the secrets in `environment` and `stdin`. Paths are as the supervisor sees them.
 */
export interface LaunchRequest {
  /** Where the launch's files go; exists. */
  folder: string;
  command: readonly string[];
  environment: Readonly<Record<string, string>>;
  stdin: string;
  cwd: string;
  /** Milliseconds since 1970. */
  deadline: number;
  /** Bytes of both streams together. */
  outputLimit: number;
  limits: SandboxLimits;
  /** The launch ends with this process; `null`: it outlives whoever started it. */
  owner: ProcessIdentity | null;
  /** Folders whose size on disk counts against the limit. */
  countedFolders: readonly string[];
  stage: StrictStage | PlainStage;
}

/** In namespaces, by bubblewrap twice: once for the network and its relay, once for the sandbox itself. */
export interface StrictStage {
  kind: 'strict';
  /** bubblewrap and the arguments that make the outer namespaces. */
  nest: readonly [string, ...string[]];
  /** Arguments that make the sandbox, without those that name descriptors, the directory and the environment. */
  sandbox: readonly string[];
  /** The seccomp program, base64. */
  seccomp: string;
  /** The Node that runs the relay's listeners inside the outer namespaces. */
  node: string;
  /** What the listeners are told, so that they can start before the relay is even loaded. */
  listenerArguments: string;
  network: NetworkPolicy;
  gateways: readonly Gateway[];
}

/** As a plain process: in a container, or without any isolation where the operator has chosen so. */
export interface PlainStage {
  kind: 'plain';
  /** What the command is started through, such as setpriv; may be empty. */
  prefix: readonly string[];
  /** The kernel user of the sandbox, if it has one of its own. */
  uid: number | null;
  /** Count processes by user? Only of use where the user is this sandbox's alone to the kernel. */
  limitProcesses: boolean;
}

/** The supervisor's one line of JSON on its standard output: the launch runs (or ran before), or why it does not. */
export type LaunchAnswer = { ok: true } | { ok: false; message: string };
