import type { SandboxLimits } from '../../../supervisor/sandbox-options.js';
import { DockerSandboxDriver } from './docker-sandbox-driver.js';
import type { DockerSandboxOptions } from './options.js';

/** Limits of each process that need not be configurable. */
const OPEN_FILES = 8192;
const TMP_SHARE = 4;

/** Creates the docker driver from the configuration. */
export function makeDockerDriver(
  options: Pick<
    DockerSandboxOptions,
    | 'installation'
    | 'image'
    | 'runtime'
    | 'cpus'
    | 'egressNetwork'
    | 'gateways'
    | 'gatewayConfig'
    | 'logger'
    | 'unknownStates'
    | 'cache'
    | 'buildLimitMs'
  > & {
    host: string;
    certPath?: string;
    limits: Pick<SandboxLimits, 'memoryBytes' | 'diskBytes' | 'processes'>;
  },
): DockerSandboxDriver {
  const { host, certPath, limits, ...rest } = options;
  return new DockerSandboxDriver({
    ...rest,
    engine: { host, ...(certPath !== undefined && { certPath }) },
    limits: {
      ...limits,
      tmpBytes: Math.ceil(limits.memoryBytes / TMP_SHARE),
      openFiles: OPEN_FILES,
    },
  });
}
