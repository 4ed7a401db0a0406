import { SandboxError } from '../sandbox-error.js';
import { ensureRootfs } from './rootfs/ensure-rootfs.js';
import { RootfsError } from './rootfs/rootfs-error.js';
import type { SandboxStore } from './sandbox-store.js';
import { diskUsage } from '../shared/supervisor/disk-watch.js';

/**
 * Gives a sandbox a system of its own, copied from a template that is made if there is none yet.
 * @param uid who will own it, `null` for the service's user
 * @returns its size on disk in bytes
 * @throws SandboxError `failed` with what the template lacks, `aborted`
 */
export async function copyOwnSystem(options: {
  store: SandboxStore;
  sandboxId: string;
  uid: number | null;
  templates: string;
  onProgress: (message: string) => void;
  signal: AbortSignal;
}): Promise<number> {
  const { store, sandboxId, uid, templates, onProgress, signal } = options;
  try {
    const template = await ensureRootfs({ dir: templates, signal, onProgress });
    await store.copyRootfs(sandboxId, template.path, uid);
    return await diskUsage([store.folder(sandboxId).rootfs], Number.POSITIVE_INFINITY);
  } catch (error) {
    if (signal.aborted) throw new SandboxError('aborted', 'the operation was aborted');
    if (!(error instanceof RootfsError)) throw error;
    throw new SandboxError('failed', error.message, { cause: error });
  }
}
