import { join } from 'node:path';
import { ensureRootfs } from '../../../src/sandboxes/local/rootfs/ensure-rootfs.js';

/** For a suite that builds it: a first build downloads and unpacks a whole Debian. */
export const ROOTFS_TIMEOUT_MS = 300_000;

/** Per user, as a template belongs to the user who made it. Outlives the run: every suite and every run shares it. */
export const SHARED_ROOTFS_DIR = join(
  process.cwd(),
  'node_modules/.cache/agent-session-service',
  `rootfs-${String(process.geteuid?.() ?? 0)}`,
);

/** The real template. */
export async function sharedRootfs(): Promise<string> {
  const signal = AbortSignal.timeout(ROOTFS_TIMEOUT_MS);
  return (await ensureRootfs({ dir: SHARED_ROOTFS_DIR, signal })).path;
}
