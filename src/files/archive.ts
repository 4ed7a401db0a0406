import { once } from 'node:events';
import { PassThrough, type Readable } from 'node:stream';
import { finished, pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { pack, type Pack } from 'tar-stream';
import { ZipFile } from 'yazl';
import type { FileEntry } from '../supervisor/files/file-access.js';

export const ARCHIVE_FORMATS = ['tar.gz', 'zip'] as const;
export type ArchiveFormat = (typeof ARCHIVE_FORMATS)[number];

/** Entries of a tree, each file followed by its bytes. */
export type Tree = AsyncIterable<FileEntry | Buffer>;

/** A zip file lists its entries at its end, so they are kept in memory until then. */
const MAX_ZIP_ENTRIES = 100_000;
const LINK_MODE = 0o120_777;
const FILE_TYPE = 0o100_000;

/** Packs a tree while it is read, and no faster than the archive is. @returns a stream that fails if the tree does */
export function archiveOf(tree: Tree, format: ArchiveFormat): Readable {
  const output = new PassThrough();
  const done = format === 'zip' ? writeZip(tree, output) : writeTarGz(tree, output);
  done.catch((error: Error) => output.destroy(error));
  return output;
}

async function writeTarGz(tree: Tree, output: PassThrough): Promise<void> {
  const tar = pack();
  // Speed matters more than the last bytes here.
  const compressed = pipeline(tar, createGzip({ level: 4 }), output);
  // If the reader goes, the loop below ends at the next entry.
  compressed.catch(() => tar.destroy());
  try {
    await fillTar(tree, tar);
    tar.finalize();
  } catch (error) {
    tar.destroy(error as Error);
    throw error;
  }
  await compressed;
}

async function fillTar(tree: Tree, tar: Pack): Promise<void> {
  let file: ReturnType<Pack['entry']> | undefined;
  let left = 0;
  for await (const part of tree) {
    if (tar.destroyed) throw new Error('the archive is not read any more');
    if (Buffer.isBuffer(part)) {
      left -= part.length;
      if (file !== undefined && !file.write(part)) await roomIn(file, tar);
    } else {
      const { name, mode, modifiedAt: mtime, size, target } = part;
      const type = part.type === 'directory' || part.type === 'symlink' ? part.type : 'file';
      const linkname = type === 'symlink' ? { linkname: target ?? '' } : {};
      file = tar.entry({ name, mode, mtime, size, type, ...linkname });
      // The archive reports the error. Without a listener, that of its entry would end the process.
      file.on('error', () => undefined);
      left = size;
    }
    if (left === 0 && file !== undefined) {
      file.end(null);
      file = undefined;
    }
  }
}

/** Waits until an entry takes more, or its archive is destroyed. */
async function roomIn(file: NodeJS.EventEmitter, tar: NodeJS.EventEmitter): Promise<void> {
  const stop = new AbortController();
  const { signal } = stop;
  const waits = [once(file, 'drain', { signal }), once(tar, 'close', { signal })];
  await Promise.race(waits).catch(() => undefined);
  stop.abort();
  await Promise.allSettled(waits);
}

async function writeZip(tree: Tree, output: PassThrough): Promise<void> {
  const zip = new ZipFile();
  const failed = Promise.withResolvers<never>();
  failed.promise.catch(() => undefined);
  zip.on('error', failed.reject);
  zip.outputStream.on('error', failed.reject);
  output.once('close', () => failed.reject(new Error('the archive is not read any more')));
  zip.outputStream.pipe(output);
  await Promise.race([fillZip(tree, zip, failed.promise), failed.promise]);
}

async function fillZip(tree: Tree, zip: ZipFile, failed: Promise<never>): Promise<void> {
  let entries = 0;
  let file: PassThrough | undefined;
  let left = 0;
  for await (const part of tree) {
    if (Buffer.isBuffer(part)) {
      left -= part.length;
      if (file !== undefined && !file.write(part)) {
        await Promise.race([once(file, 'drain'), failed]);
      }
    } else {
      entries += 1;
      if (entries > MAX_ZIP_ENTRIES) throw new Error('there are too many files for a zip archive');
      const name = zipName(part.name);
      const times = { mtime: part.modifiedAt };
      if (part.type === 'directory') zip.addEmptyDirectory(name, { ...times, mode: part.mode });
      else if (part.type === 'symlink') {
        zip.addBuffer(Buffer.from(part.target ?? ''), name, { ...times, mode: LINK_MODE });
      } else {
        file = new PassThrough();
        file.on('error', () => undefined);
        left = part.size;
        zip.addReadStream(file, name, { ...times, mode: FILE_TYPE | (part.mode & 0o777) });
      }
    }
    if (left === 0 && file !== undefined) {
      file.end();
      // The next one only then, so that no more than one file waits in memory.
      await Promise.race([finished(file), failed]);
      file = undefined;
    }
  }
  zip.end();
}

/** On Windows a backslash separates folders, and a colon names a drive: no name may lead out of the target folder. */
function zipName(name: string): string {
  return name.replaceAll('\\', '_').replaceAll(':', '_');
}
