import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from '@jest/globals';
import { isThere } from './missing-file.js';

it('distinguishes a missing file from an unknown state', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'there-'));
  await writeFile(join(folder, 'file'), '');
  await symlink('loop', join(folder, 'loop'));
  expect(await isThere(join(folder, 'file'))).toBe(true);
  expect(await isThere(join(folder, 'none'))).toBe(false);
  expect(await isThere(join(folder, 'file/below'))).toBe(false);
  await expect(isThere(join(folder, 'loop'))).rejects.toMatchObject({ code: 'ELOOP' });
  await rm(folder, { recursive: true });
});
