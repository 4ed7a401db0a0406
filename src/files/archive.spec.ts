import { once } from 'node:events';
import { describe, expect, it } from '@jest/globals';
import type { FileEntry } from '../supervisor/files/file-access.js';
import { ARCHIVE_FORMATS, archiveOf } from './archive.js';

const LARGE: FileEntry = {
  type: 'file',
  name: 'large',
  size: 100_000_000,
  mode: 0o644,
  modifiedAt: new Date(0),
  version: '1',
};

describe.each(ARCHIVE_FORMATS)('an archive of the format %s', (format) => {
  it('fails as a whole if its tree ends in the middle of a file', async () => {
    const tree = async function* () {
      yield LARGE;
      yield Buffer.alloc(1_000_000);
      throw new Error('the sandbox is gone');
    };
    const archive = archiveOf(tree(), format);
    archive.resume();
    const [error] = (await once(archive, 'error')) as [Error];
    expect(error.message).toBe('the sandbox is gone');
  });

  it('ends its tree when its reader leaves in the middle of a file', async () => {
    const ended = Promise.withResolvers<void>();
    const tree = async function* () {
      try {
        yield LARGE;
        for (;;) yield Buffer.from(crypto.getRandomValues(new Uint8Array(65_536)));
      } finally {
        ended.resolve();
      }
    };
    const archive = archiveOf(tree(), format);
    archive.on('error', () => undefined);
    await once(archive, 'readable');
    archive.destroy();
    await ended.promise;
  });
});
