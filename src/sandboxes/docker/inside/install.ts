/**
 * Copies the runtime that this image holds to a volume, whole or not at all. Arguments: the runtime's folder, and the
 * volume's.
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
    // Somebody else was faster.
    if (!existsSync(target)) throw error;
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}
