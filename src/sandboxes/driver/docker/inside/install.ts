/**
 * Copies the runtime in this image to a volume, atomically. Arguments: the folders of the runtime and of the volume.
 */
import { cpSync, existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';

const [, , from = '', volume = ''] = process.argv;
const target = join(volume, basename(from));
if (!existsSync(target)) {
  const draft = mkdtempSync(join(volume, '.draft-'));
  cpSync(from, join(draft, 'copy'), { recursive: true });
  try {
    renameSync(join(draft, 'copy'), target);
  } catch (error) {
    // Another process was faster.
    if (!existsSync(target)) throw error;
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}
