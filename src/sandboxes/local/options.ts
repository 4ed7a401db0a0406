import type { Gateway } from '../shared/relay/gateways.js';
import type { SandboxLimits, SandboxLogger } from '../shared/sandbox-options.js';

export interface LocalSandboxOptions {
  /** Where sandboxes live; made if missing. Absolute. One driver's state must not be shared between hosts. */
  stateDir: string;
  /** `strict` needs namespaces and never runs without them; `degraded` is the operator's explicit way out. */
  isolation: 'strict' | 'degraded';
  limits: SandboxLimits;
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
