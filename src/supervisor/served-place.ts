import type { MonitoredDisk } from './supervisor.js';

/** The argument of the program `serve.ts`, which describes where it runs. Paths are as the program sees them. */
export interface ServedPlace {
  /** The folder of all launches. */
  launches: string;
  /** The kernel user of processes without namespaces. */
  agentUser: number;
  /** What written files count towards, unless the file system limits it. */
  disk?: MonitoredDisk;
  /**
   * Whether supervisors are kept from whoever ends the program that starts them with all its descendants. Default: false.
   */
  detach?: boolean;
  /** The program that confines the runtime. */
  confine: string;
  /** The command of the supervisor of one launch: Node and `main.ts`. */
  main: readonly string[];
}
