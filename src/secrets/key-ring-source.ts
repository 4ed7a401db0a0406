import { randomUUID } from 'node:crypto';
import { link, mkdir, open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { KeyRing } from './key-ring.js';

/**
 * The ring from `ENCRYPTION_KEYS`, or from a file under the data folder, which is made (mode 0600) if it is not there.
 * Processes that make it at the same time end up with the same one.
 */
export async function loadKeyRing(config: {
  encryptionKeys?: string;
  dataDir: string;
}): Promise<KeyRing> {
  if (config.encryptionKeys !== undefined) return KeyRing.parse(config.encryptionKeys);
  const path = join(config.dataDir, 'encryption-keys');
  const text = (await readIfThere(path)) ?? (await create(path, config.dataDir));
  return KeyRing.parse(text.trim());
}

async function create(path: string, folder: string): Promise<string> {
  await mkdir(folder, { recursive: true });
  const draft = `${path}.${randomUUID()}.new`;
  const file = await open(draft, 'w', 0o600);
  try {
    await file.writeFile(`${KeyRing.generateEntry()}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  try {
    // link, unlike rename, leaves a ring that somebody else made in the meantime alone.
    await link(draft, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    await rm(draft, { force: true });
  }
  return readFile(path, 'utf8');
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
