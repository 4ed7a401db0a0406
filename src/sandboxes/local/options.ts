/** What the launches of a sandbox may use. */
export interface LocalSandboxLimits {
  /** Processes and threads alive at once. */
  processes: number;
  /** Memory of all processes of a launch together. */
  memoryBytes: number;
  /** Bytes on disk of one sandbox: home, workspace and installed software. */
  diskBytes: number;
  /** Size of the private /tmp; /dev/shm gets the same, /run a fraction. */
  tmpBytes: number;
  /** Open files of one process. */
  openFiles: number;
}

/** Messages for the operator; never secrets. */
export interface SandboxLogger {
  warn(message: string): void;
  debug(message: string): void;
}

/** An address that sandboxes may reach although it is private, such as a gateway to a model API. */
export interface Gateway {
  host: string;
  port: number;
}

export interface LocalSandboxOptions {
  /** Where sandboxes live; made if missing. Absolute. One driver's state must not be shared between hosts. */
  stateDir: string;
  /** `strict` needs namespaces and never runs without them; `degraded` is the operator's explicit way out. */
  isolation: 'strict' | 'degraded';
  limits: LocalSandboxLimits;
  gateways: readonly Gateway[];
  logger?: SandboxLogger;
  /** The Node that runs supervisors. Default: this process's own. */
  nodePath?: string;
  /** A folder whose `bin` is on the PATH inside every sandbox, read-only, at `/tools`. */
  toolsDir?: string;
  /** Where programs for sandboxes are kept once they are installed. Default: with the sandboxes. */
  programsDir?: string;
  /** The environment in which npm is asked for the host's settings. Default: the service's own. */
  npmEnv?: Readonly<Record<string, string>>;
  /** Where the template for sandboxes that install system software is kept. Default: `.rootfs` in `stateDir`. */
  rootfsDir?: string;
}
