import { accessSync, constants, lstatSync, readFileSync, readlinkSync } from 'node:fs';
import { join, sep } from 'node:path';
import { hasConfineProgram } from '../../../supervisor/confine.js';
import { SYSTEM_PATH } from '../../../supervisor/sandbox-options.js';
import { packageRoot } from '../../../common/package-root.js';

const CAP_SYS_ADMIN = 21n;

/** What this machine and this process bring along for isolating. */
export interface Host {
  root: boolean;
  /** May this process mount, so that a sandbox's user sees what it needs wherever that lies? */
  mounts: boolean;
  bwrap: string | null;
  /** Is the program there that confines agents, see `native/confine.c`? */
  confine: boolean;
}

export function findProgram(name: string): string | null {
  for (const folder of SYSTEM_PATH.split(':')) {
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // Not there.
    }
  }
  return null;
}

function hasCapability(bit: bigint): boolean {
  try {
    const effective = /^CapEff:\s+([0-9a-f]+)/m.exec(readFileSync('/proc/self/status', 'utf8'));
    return ((BigInt(`0x${effective?.[1] ?? '0'}`) >> bit) & 1n) === 1n;
  } catch {
    return false;
  }
}

export function inspectHost(): Host {
  return {
    root: process.geteuid?.() === 0,
    mounts: hasCapability(CAP_SYS_ADMIN),
    bwrap: findProgram('bwrap'),
    confine: hasConfineProgram(packageRoot()),
  };
}

/** Is `path` the folder itself or below it? */
export function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

/** A part of the root that is either a folder or, on merged systems, a link into /usr. */
export type RootEntry = { path: string; link: string } | { path: string; link: null };

/** What stands beside /usr in a root file system and belongs to it. */
export function systemFolders(root: string): RootEntry[] {
  const entries: RootEntry[] = [];
  for (const path of ['/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32']) {
    const stats = lstatSync(join(root, path), { throwIfNoEntry: false });
    if (stats?.isSymbolicLink()) entries.push({ path, link: readlinkSync(join(root, path)) });
    else if (stats?.isDirectory()) entries.push({ path, link: null });
  }
  return entries;
}

/** The first folder on the way to `path` that a user without any rights of its own cannot pass, or `null`. */
export function barrierTo(path: string): string | null {
  const parts = path.split(sep).filter(Boolean);
  for (let i = 0; i < parts.length; i += 1) {
    const folder = sep + parts.slice(0, i).join(sep);
    const stats = lstatSync(folder, { throwIfNoEntry: false });
    if (stats?.isDirectory() && (stats.mode & 0o001) === 0) return folder;
  }
  return null;
}
