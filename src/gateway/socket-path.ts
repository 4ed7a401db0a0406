import { constants, openSync } from 'node:fs';
import { basename, dirname } from 'node:path';

/** The kernel accepts paths of up to 107 bytes. */
const MAX_BYTES = 100;

/** Descriptors of folders whose paths are too long. They stay open, because connections are made again and again. */
const folders = new Map<string, number>();

/** A path of the same unix socket that is short enough for the kernel. @throws the system's error without the folder */
export function shortPath(path: string): string {
  if (Buffer.byteLength(path) <= MAX_BYTES) return path;
  const folder = dirname(path);
  let fd = folders.get(folder);
  if (fd === undefined) {
    fd = openSync(folder, constants.O_RDONLY | constants.O_DIRECTORY);
    folders.set(folder, fd);
  }
  return `/proc/self/fd/${fd}/${basename(path)}`;
}
