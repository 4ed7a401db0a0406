import { join } from 'node:path';
import { LocalSandboxDriver } from './local-sandbox-driver.js';
import type { LocalSandboxOptions } from './options.js';
import type { SandboxLimits, SandboxLogger } from '../shared/sandbox-options.js';
import { ensureTools } from './tools/ensure-tools.js';

/** Per-process bounds that are not worth configuring. */
const OPEN_FILES = 8192;
const TMP_SHARE = 4;

/** The local driver as the service uses it. */
export async function makeLocalDriver(
  options: Pick<
    LocalSandboxOptions,
    'stateDir' | 'isolation' | 'gateways' | 'logger' | 'npmEnv'
  > & {
    /** What sandboxes share and can be made again: the root file system template, tools, programs. */
    cacheDir: string;
    limits: Pick<SandboxLimits, 'memoryBytes' | 'diskBytes' | 'processes'>;
  },
): Promise<LocalSandboxDriver> {
  const { cacheDir, limits, ...rest } = options;
  return new LocalSandboxDriver({
    ...rest,
    toolsDir: await toolsIn(cacheDir, options.logger),
    limits: {
      ...limits,
      tmpBytes: Math.ceil(limits.memoryBytes / TMP_SHARE),
      openFiles: OPEN_FILES,
    },
    programsDir: join(cacheDir, 'programs'),
    rootfsDir: join(cacheDir, 'rootfs'),
  });
}

/** Node and npm for sandboxes. Without them a sandbox has what the host has, which is no reason not to start. */
async function toolsIn(cacheDir: string, logger?: SandboxLogger): Promise<string | undefined> {
  try {
    return (await ensureTools({ dir: join(cacheDir, 'tools') })).path;
  } catch (error) {
    logger?.warn(`Sandboxes go without Node and npm of their own: ${String(error)}`);
    return undefined;
  }
}
