import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { isWithin } from './host.js';
import type { LayerCache } from './layers/layer-store.js';
import { packageRoot } from '../../../common/package-root.js';
import type { EgressNetwork } from '../../../common/egress-network.js';
import type { GatewayKeeper } from '../../../gateway/gateway-keeper.js';
import type { Gateway } from '../../../supervisor/relay/gateways.js';
import type { SandboxLimits, SandboxLogger } from '../../../supervisor/sandbox-options.js';
import type { UnknownStates } from '../../../supervisor/sandbox-error.js';

/**
 * The path of the compiled supervisor below the package. It is a separate program and always runs from the build, even
 * if a test runs this module from source.
 */
const SUPERVISOR = 'dist/src/supervisor/main.js';

/** The compiled supervisor as seen through a view's `app`. */
export function supervisorEntry(app: string): string {
  return join(app, SUPERVISOR);
}

/** @throws Error if the package has not been built */
export function requireBuild(): void {
  const path = supervisorEntry(packageRoot());
  if (!existsSync(path)) throw new Error(`${path} is missing: run \`npm run build\``);
}

/** Folders of the service below /usr. They are hidden, because sandboxes see the rest of /usr. */
export function hiddenFolders(stateDir: string): string[] {
  const shared = new Set([
    '/usr',
    '/usr/local',
    '/usr/share',
    '/usr/lib',
    '/usr/src',
    '/usr/local/lib',
  ]);
  const own = [packageRoot(), dirname(stateDir), stateDir].filter(
    (path) => isWithin(path, '/usr') && !shared.has(path),
  );
  return own.filter((path) => !own.some((other) => other !== path && isWithin(path, other)));
}

export interface LocalSandboxOptions {
  /** The folder of the sandboxes; made if missing. Absolute. Hosts must not share it. */
  stateDir: string;
  /** `strict` requires namespaces. `degraded` runs without them, if the operator explicitly chooses it. */
  isolation: 'strict' | 'degraded';
  limits: SandboxLimits;
  /** Processors of one launch; may be a fraction. `undefined`: no limit, with fair shares. */
  cpus?: number;
  gateways: readonly Gateway[];
  /** The operator's network. Default: only public addresses. */
  network?: EgressNetwork;
  /** Keeps the gateway of this machine running. Default: sandboxes connect without one, and have no credentials. */
  gateway?: GatewayKeeper;
  logger?: SandboxLogger;
  /** Notified of launches whose state becomes unknown, or known again. */
  unknownStates?: UnknownStates;
  /** The Node that runs supervisors. Default: this process's own. */
  nodePath?: string;
  /** A folder whose `bin` is on the PATH inside every sandbox, read-only, at `/tools`. */
  toolsDir?: string;
  /** The folder of installed programs for sandboxes. Default: with the sandboxes. */
  programsDir?: string;
  /** The environment of npm when its settings are read. Default: the service's own. */
  npmEnv?: Readonly<Record<string, string>>;
  /** The shared layers that are kept although no sandbox uses them. */
  layers?: LayerCache;
  /** The longest duration of a build. */
  buildLimitMs?: number;
  /** The folder of the template for sandboxes that install system software. Default: `.rootfs` in `stateDir`. */
  rootfsDir?: string;
}
