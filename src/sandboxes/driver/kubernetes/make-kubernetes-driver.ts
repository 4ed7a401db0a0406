import type { SandboxLimits } from '../../../supervisor/sandbox-options.js';
import { KubernetesSandboxDriver } from './kubernetes-sandbox-driver.js';
import type { KubernetesOptions } from './options.js';

/** Limits of each process that need not be configurable. */
const OPEN_FILES = 8192;
const TMP_SHARE = 4;

/** Creates the driver from the configuration. */
export function makeKubernetesDriver(
  options: Omit<KubernetesOptions, 'limits'> & {
    limits: Pick<SandboxLimits, 'memoryBytes' | 'diskBytes' | 'processes'>;
  },
): KubernetesSandboxDriver {
  const tmpBytes = Math.ceil(options.limits.memoryBytes / TMP_SHARE);
  const limits = { ...options.limits, tmpBytes, openFiles: OPEN_FILES };
  return new KubernetesSandboxDriver({ ...options, limits });
}
