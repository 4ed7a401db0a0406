import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** A file of a bundle of programs that runs outside of this host. */
export interface BundledFile {
  path: string;
  read: () => Buffer;
  mode: number;
}

/** The libraries that this Node process has loaded, including the dynamic loader. */
export function sharedLibraries(): string[] {
  const { sharedObjects } = process.report.getReport() as unknown as { sharedObjects: string[] };
  return sharedObjects
    .filter((path) => path.startsWith('/') && existsSync(path))
    .filter(
      // Native addons of this process are not part of Node.
      (path) => !path.endsWith('.node'),
    );
}

/** The file that the dynamic loader reads libraries from. */
export const PRELOAD_FILE = '/etc/ld.so.preload';
/** A path of the same length where no process can create a file. */
export const NO_FILE = '/proc/no/such/file';

/**
 * The dynamic loader, modified so that it cannot find the file with libraries to preload. In a container, that file
 * belongs to the image, or to the tenant if a setup script wrote it, while the loader starts our programs.
 */
export function withoutPreload(loader: Buffer): Buffer {
  for (let at = loader.indexOf(PRELOAD_FILE); at >= 0; at = loader.indexOf(PRELOAD_FILE, at + 1)) {
    loader.write(NO_FILE, at, 'latin1');
  }
  return loader;
}

/** Our programs in a file or folder of the service's package. */
export function filesBelow(root: string, part: string): BundledFile[] {
  const path = join(root, part);
  if (statSync(path).isDirectory()) {
    return readdirSync(path)
      .toSorted()
      .flatMap((name) => filesBelow(root, join(part, name)));
  }
  if (!/\.(?:[cm]?js|json)$/.test(part)) return [];
  return [{ path: part, read: () => readFileSync(path), mode: 0o444 }];
}
