import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { execFile } from 'node:child_process';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { ROOTFS_PACKAGES, buildRootfs } from './build-rootfs.js';
import { withFileLock } from './file-lock.js';
import { readHostApt } from './host-apt.js';
import { RootfsError } from './rootfs-error.js';
import type { HostApt } from './host-apt.js';

export interface EnsureRootfsOptions {
  /** Where templates are kept. Made if missing. */
  dir: string;
  signal: AbortSignal;
  /** Told in a few words what is going on, a few times a minute. Silent if the template is there already. */
  onProgress?: (message: string) => void;
}

/** Counts up when what is in a template changes in a way that its other inputs do not show. */
const FORMAT = 1;
const BUILDING = '.building';
const PROGRAMS: readonly (readonly [program: string, debianPackage: string])[] = [
  ['debootstrap', 'debootstrap'],
  ['bwrap', 'bubblewrap'],
];
const PROGRAM_FOLDERS = [
  '/usr/local/sbin',
  '/usr/local/bin',
  '/usr/sbin',
  '/usr/bin',
  '/sbin',
  '/bin',
];

/** A build in this process with everyone who waits for it. */
interface Build {
  done: Promise<void>;
  waiting: Set<(message: string) => void>;
  abandon: AbortController;
}

/** By path. */
const running = new Map<string, Build>();

/**
 * Makes, once, a Debian root file system for sandboxes that install software, and finds it again later. It takes some 45
 * seconds, 300 MB and the host's own package mirrors; concurrent callers, in this process and in others, share one build,
 * and what a crash leaves of one is removed by the next. A build ends early
 * when the last caller that waits for it has given up.
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
  const { signal, onProgress = () => undefined } = options;
  signal.throwIfAborted();
  const apt = await readHostApt();
  const dir = resolve(options.dir);
  const path = join(dir, `debian-${apt.codename}-${fingerprint(apt)}`);
  if (existsSync(path)) return { path };

  let build = running.get(path);
  if (build === undefined || build.abandon.signal.aborted) {
    build = start({ dir, path, apt });
    running.set(path, build);
  }
  const listener = (message: string): void => onProgress(message);
  build.waiting.add(listener);
  try {
    await orAborted(build.done, signal);
  } finally {
    build.waiting.delete(listener);
    if (build.waiting.size === 0) build.abandon.abort();
  }
  return { path };
}

function start(options: { dir: string; path: string; apt: HostApt }): Build {
  const waiting: Build['waiting'] = new Set();
  const abandon = new AbortController();
  const done = ensure({
    ...options,
    signal: abandon.signal,
    onProgress: (message) => {
      for (const tell of waiting) tell(message);
    },
  });
  const build = { done, waiting, abandon };
  const forget = (): void => {
    if (running.get(options.path) === build) running.delete(options.path);
  };
  // Also where no one is left to see it fail.
  done.then(forget, forget);
  return build;
}

async function ensure(options: {
  dir: string;
  path: string;
  apt: HostApt;
  signal: AbortSignal;
  onProgress: (message: string) => void;
}): Promise<void> {
  const { dir, path, apt, signal, onProgress } = options;
  requirePrograms();
  await mkdir(dir, { recursive: true });
  await withFileLock(join(dir, '.lock'), signal, async () => {
    if (existsSync(path)) return;
    for (const name of await readdir(dir)) {
      if (name.endsWith(BUILDING)) await rm(join(dir, name), { recursive: true, force: true });
    }
    const root = `${path}${BUILDING}`;
    await mkdir(root, { mode: 0o755 });
    try {
      await buildRootfs({ root, apt, signal, onProgress });
      // Complete on disk before it has its name, so that a power cut leaves a whole template or none.
      await promisify(execFile)('sync', ['-f', root]);
      await rename(root, path);
    } catch (error) {
      await rm(root, { recursive: true, force: true });
      throw error;
    }
  });
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
    ([program]) => !PROGRAM_FOLDERS.some((folder) => existsSync(join(folder, program))),
  ).map(([, debianPackage]) => debianPackage);
  if (missing.length === 0) return;
  const sudo = process.geteuid?.() === 0 ? '' : 'sudo ';
  throw new RootfsError(
    `installing software in sandboxes needs ${missing.join(' and ')}; run: ${sudo}apt-get install -y ${missing.join(' ')}`,
  );
}

async function orAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  let onAbort: () => void = () => undefined;
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason as Error);
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
  await Promise.race([work, aborted]).finally(() => signal.removeEventListener('abort', onAbort));
}
