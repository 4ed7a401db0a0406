import { join } from 'node:path';
import { ensureRootfs } from '../../src/sandboxes/driver/local/rootfs/ensure-rootfs.js';
import { onDocker, onSprites } from './driver.js';

/** For whatever may have to make the root file system first: a download, and a minute of work. */
export const ROOTFS_TIMEOUT_MS = 400_000;

/** What sandboxes share; outlives the run, so that the root file system is built once on a machine. */
export const SOFTWARE_CACHE = join(
  process.cwd(),
  'node_modules/.cache/agent-session-service',
  `e2e-${String(process.geteuid?.() ?? 0)}`,
);

/** Makes sure that what environments with software or a setup script need is there: locally, a root file system. */
export async function prepareSoftware(): Promise<void> {
  if (onDocker() || onSprites()) return;
  const signal = AbortSignal.timeout(ROOTFS_TIMEOUT_MS);
  await ensureRootfs({ dir: join(SOFTWARE_CACHE, 'rootfs'), signal });
}
