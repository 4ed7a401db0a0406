import type { SandboxLimits } from '../../../supervisor/sandbox-options.js';
import type { SpritesOptions } from './options.js';
import { SpritesSandboxDriver } from './sprites-sandbox-driver.js';

/** Limits of each process that need not be configurable. */
const OPEN_FILES = 8192;
const TMP_SHARE = 4;

/** Creates the driver from the configuration. */
export function makeSpritesDriver(
  options: Omit<SpritesOptions, 'limits'> & {
    limits: Pick<SandboxLimits, 'memoryBytes' | 'diskBytes' | 'processes'>;
  },
): SpritesSandboxDriver {
  const tmpBytes = Math.ceil(options.limits.memoryBytes / TMP_SHARE);
  const limits = { ...options.limits, tmpBytes, openFiles: OPEN_FILES };
  return new SpritesSandboxDriver({ ...options, limits });
}
