/** The agent's user and group id in every sandbox with its own root file system. */
export const AGENT_ID = 1000;
export const HOME = '/home/agent';
export const WORKSPACE = '/workspace';
export const HOST_NAME = 'sandbox';

/** The PATH inside sandboxes and for commands that drivers start on the host. */
export const SYSTEM_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** The limits of a sandbox's launches. */
export interface SandboxLimits {
  /** Concurrent processes and threads. */
  processes: number;
  /** The memory that all processes of a launch may use together. */
  memoryBytes: number;
  /** Bytes on disk of one sandbox: home, workspace, /tmp, /var/tmp and installed software. */
  diskBytes: number;
  /** Size of /dev/shm, which is in memory. /run gets a fraction of it. */
  tmpBytes: number;
  /** Open files of one process. */
  openFiles: number;
}

/** The limits that are configured. */
export type ConfiguredLimits = Pick<SandboxLimits, 'processes' | 'memoryBytes' | 'diskBytes'>;

const TMP_SHARE = 4;
const OPEN_FILES = 8192;

/** All limits: with those that need not be configurable. */
export function sandboxLimits(configured: ConfiguredLimits): SandboxLimits {
  const tmpBytes = Math.ceil(configured.memoryBytes / TMP_SHARE);
  return { ...configured, tmpBytes, openFiles: OPEN_FILES };
}

/** Messages for the operator; never secrets. */
export interface SandboxLogger {
  warn(message: string): void;
  debug(message: string): void;
}
