/** What the launches of a sandbox may use. */
export interface SandboxLimits {
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
