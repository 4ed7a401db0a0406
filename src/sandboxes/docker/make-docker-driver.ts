import type { SandboxLimits } from '../shared/sandbox-options.js';
import { DockerSandboxDriver } from './docker-sandbox-driver.js';
import type { DockerSandboxOptions } from './options.js';

/** Per-process bounds that are not worth configuring. */
const OPEN_FILES = 8192;
const TMP_SHARE = 4;

/** The docker driver as configuration describes it. */
export function makeDockerDriver(
  options: Pick<
    DockerSandboxOptions,
    'installation' | 'image' | 'runtime' | 'cpus' | 'egressNetwork' | 'gateways' | 'logger'
  > & {
    host: string;
    certPath?: string;
    cachedImages: number;
    cachedImageTtlSeconds: number;
    limits: Pick<SandboxLimits, 'memoryBytes' | 'diskBytes' | 'processes'>;
  },
): DockerSandboxDriver {
  const { host, certPath, cachedImages, cachedImageTtlSeconds, limits, ...rest } = options;
  return new DockerSandboxDriver({
    ...rest,
    engine: { host, ...(certPath !== undefined && { certPath }) },
    cache: { images: cachedImages, seconds: cachedImageTtlSeconds },
    limits: {
      ...limits,
      tmpBytes: Math.ceil(limits.memoryBytes / TMP_SHARE),
      openFiles: OPEN_FILES,
    },
  });
}
