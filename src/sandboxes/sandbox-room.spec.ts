import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { findShortOfDisk } from './sandbox-room.js';

describe('the disk of the host', () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'room-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  it('is short below the watermark', async () => {
    expect(await findShortOfDisk([folder], 1)).toBeUndefined();
    expect(await findShortOfDisk([folder], Number.MAX_SAFE_INTEGER)).toMatchObject({ folder });
  });

  it('counts as full if its free space is unknown', async () => {
    const loop = join(folder, 'loop');
    await symlink('loop', loop);
    const looking = findShortOfDisk([join(folder, 'not made yet'), loop], 1);
    await expect(looking).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('ELOOP'),
    });
    expect(await findShortOfDisk([loop], 0)).toBeUndefined();
  });
});
