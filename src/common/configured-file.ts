import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';

/** More than any certificate bundle or price list has. */
const MAX_BYTES = 8 * 2 ** 20;

/**
 * Reads a text file that a setting names. A device or a pipe in its place, which may never end, is refused.
 * @param maxBytes a file with more is refused as well
 * @throws Error whose message has the path and the reason
 */
export function readConfiguredFile(path: string, maxBytes = MAX_BYTES): string {
  let fd: number;
  try {
    // Opening a pipe would otherwise wait for somebody who writes to it.
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    throw cannotRead(path, error);
  }
  try {
    if (!fstatSync(fd).isFile()) throw new Error(`${path} is not a regular file`);
    return readBounded(fd, path, maxBytes);
  } finally {
    closeSync(fd);
  }
}

/** Does not trust the size that the system states, because files of /proc state none. */
function readBounded(fd: number, path: string, maxBytes: number): string {
  const parts: Buffer[] = [];
  for (let size = 0; ;) {
    const part = Buffer.alloc(65_536);
    let got: number;
    try {
      got = readSync(fd, part);
    } catch (error) {
      throw cannotRead(path, error);
    }
    if (got === 0) return Buffer.concat(parts).toString('utf8');
    size += got;
    if (size > maxBytes) throw new Error(`${path} is larger than ${String(maxBytes)} bytes`);
    parts.push(part.subarray(0, got));
  }
}

function cannotRead(path: string, cause: unknown): Error {
  const { code = 'unknown error' } = cause as NodeJS.ErrnoException;
  return new Error(`cannot read ${path} (${code})`, { cause });
}
