import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { buildRootfs, ROOTFS_PACKAGES } from './build-rootfs.js';
import { CONTAINED_PATH, RootfsError } from './contained.js';
import { readHostApt, type HostApt } from './host-apt.js';
import { publishOnce } from '../../../../common/publish-once.js';
import { SandboxError } from '../../../../supervisor/sandbox-error.js';
import { diskUsage } from '../../../../supervisor/limits/disk-usage.js';

export interface EnsureRootfsOptions {
  /** Where templates are kept. Made if missing. */
  dir: string;
  signal: AbortSignal;
  /** Told in a few words what is going on, a few times a minute. Silent if the template is there already. */
  onProgress?: (message: string) => void;
}

/** Counts up when what is in a template changes in a way that its other inputs do not show. */
const FORMAT = 1;
const PROGRAMS: readonly (readonly [program: string, debianPackage: string])[] = [
  ['debootstrap', 'debootstrap'],
  ['bwrap', 'bubblewrap'],
];

/**
 * Makes, once, a Debian root file system for sandboxes that install software, and finds it again later. It takes about a
 * minute, 260 MB and the host's own package mirrors, and works for an ordinary user as for root. Concurrent callers, in
 * this process and in others, share one build; see {@link publishOnce}.
 *
 * Ownership: every file belongs to the user and group of this process, root's to root; nothing in it was ever owned by
 * anyone else, there are no device nodes, and `/dev`, `/proc`, `/sys`, `/run` and `/tmp` are empty. A sandbox with a user
 * of its own needs a copy that belongs to that user: then root inside, being that user, can change everything.
 * Modes are Debian's; set-user-id bits among them mean nothing once the copy has changed hands.
 *
 * Inside: resolv.conf names the relay, apt does not try to become another user, sources and keys, proxies and CA
 * certificates are the host's. Package lists are not: `apt-get update` comes first.
 *
 * @returns the absolute path of a complete template
 * @throws RootfsError with the cause, and the command to run where one helps; the signal's reason if aborted
 */
export async function ensureRootfs(options: EnsureRootfsOptions): Promise<{ path: string }> {
  const { dir, signal, onProgress } = options;
  const apt = await readHostApt();
  const path = await publishOnce({
    dir,
    name: `debian-${apt.codename}-${fingerprint(apt)}`,
    signal,
    ...(onProgress ? { onProgress } : {}),
    build: async ({ draft, ...context }) => {
      requirePrograms();
      await buildRootfs({ root: draft, apt, ...context });
    },
  });
  return { path };
}

function fingerprint(apt: HostApt): string {
  const { codename, sources, configuration } = apt;
  return createHash('sha256')
    .update(
      JSON.stringify([FORMAT, process.arch, codename, sources, configuration, ROOTFS_PACKAGES]),
    )
    .digest('hex')
    .slice(0, 12);
}

function requirePrograms(): void {
  const missing = PROGRAMS.filter(
    ([program]) => !CONTAINED_PATH.split(':').some((folder) => existsSync(join(folder, program))),
  ).map(([, debianPackage]) => debianPackage);
  if (missing.length === 0) return;
  const sudo = process.geteuid?.() === 0 ? '' : 'sudo ';
  throw new RootfsError(
    `installing software in sandboxes needs ${missing.join(' and ')}; run: ${sudo}apt-get install -y ${missing.join(' ')}`,
  );
}

/** The system that sandboxes with a writable root get a copy of. */
export interface SystemTemplate {
  path: string;
  /** Its size on disk. */
  bytes: number;
}

const sizes = new Map<string, number>();

/**
 * Returns the template, and makes it if there is none yet.
 * @throws SandboxError `failed` with the missing requirement, `aborted`
 */
export async function systemTemplate(options: {
  templates: string;
  /** Called with the current step while the template is made, and with `null` at the end. */
  onProgress: (message: string | null) => void;
  signal: AbortSignal;
}): Promise<SystemTemplate> {
  const { templates, onProgress, signal } = options;
  try {
    const { path } = await ensureRootfs({ dir: templates, signal, onProgress });
    onProgress(null);
    const bytes = sizes.get(path) ?? (await diskUsage([path], Number.POSITIVE_INFINITY));
    sizes.set(path, bytes);
    return { path, bytes };
  } catch (error) {
    if (signal.aborted) throw new SandboxError('aborted', 'the operation was aborted');
    if (!(error instanceof RootfsError)) throw error;
    throw new SandboxError('failed', error.message, { cause: error });
  }
}
