import { join } from 'node:path';
import { SOFTWARE_CACHE } from '../../support/software.js';
import { ensureRootfs } from '../../../src/sandboxes/driver/local/rootfs/ensure-rootfs.js';

/** For a suite that builds it: a first build downloads and unpacks a whole Debian. */
export const ROOTFS_TIMEOUT_MS = 300_000;

/** Outlives the run: every suite and every run shares it, and so do the services that suites start. */
export const SHARED_ROOTFS_DIR = join(SOFTWARE_CACHE, 'rootfs');

/** The real template. */
export async function sharedRootfs(): Promise<string> {
  const signal = AbortSignal.timeout(ROOTFS_TIMEOUT_MS);
  return (await ensureRootfs({ dir: SHARED_ROOTFS_DIR, signal })).path;
}
