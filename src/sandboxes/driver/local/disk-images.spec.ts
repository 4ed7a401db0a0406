import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from '@jest/globals';
import { DiskImages } from './disk-images.js';
import type { Host } from './host.js';
import type { Launcher } from './launcher/launcher.js';

it('makes no image where it cannot tell whether there is one', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'images-'));
  const image = join(folder, 'disk.img');
  symlinkSync('disk.img', image);
  const images = new DiskImages({ root: false } as Host, {} as Launcher, folder);
  await expect(images.make(image, folder, 0)).rejects.toMatchObject({ code: 'ELOOP' });
  rmSync(folder, { recursive: true });
});
