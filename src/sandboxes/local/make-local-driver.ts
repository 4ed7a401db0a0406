import { join } from 'node:path';
import { LocalSandboxDriver } from './local-sandbox-driver.js';
import type { LocalSandboxLimits, LocalSandboxOptions } from './options.js';
import { ensureRootfs } from './rootfs/ensure-rootfs.js';

/** Per-process bounds that are not worth configuring. */
const OPEN_FILES = 8192;
const TMP_SHARE = 4;

/** The local driver as the service uses it. */
export async function makeLocalDriver(
  options: Pick<LocalSandboxOptions, 'stateDir' | 'isolation' | 'gateways' | 'logger'> & {
    /** What sandboxes share and can be made again: the root file system template, tools. */
    cacheDir: string;
    limits: Pick<LocalSandboxLimits, 'memoryBytes' | 'diskBytes' | 'processes'>;
  },
): Promise<LocalSandboxDriver> {
  const { cacheDir, limits, ...rest } = options;
  return new LocalSandboxDriver({
    ...rest,
    limits: {
      ...limits,
      tmpBytes: Math.ceil(limits.memoryBytes / TMP_SHARE),
      openFiles: OPEN_FILES,
    },
    ensureRootfs: (request) => ensureRootfs({ ...request, dir: join(cacheDir, 'rootfs') }),
  });
}
