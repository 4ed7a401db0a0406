import { randomUUID } from 'node:crypto';
import { link, mkdir, open, readdir, readFile, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

/**
 * The text of a small file that all processes on a folder share, made on first use. Processes that make it at the same
 * time end up with the same one, and one that is killed meanwhile leaves nothing half written under its name.
 * @param make gives the text for a file that is not there; @param mode its permission bits.
 */
export async function readOrCreate(
  path: string,
  make: () => string,
  mode = 0o644,
): Promise<string> {
  const there = await readIfThere(path);
  if (there !== undefined) {
    await sweepDrafts(path);
    return there;
  }
  await mkdir(dirname(path), { recursive: true });
  const draft = `${path}.${randomUUID()}.new`;
  const file = await open(draft, 'w', mode);
  try {
    await file.writeFile(make());
    await file.sync();
  } finally {
    await file.close();
  }
  try {
    // link, unlike rename, leaves alone what somebody else made in the meantime.
    await link(draft, path);
  } catch (error) {
    // Either somebody else's is there, or that one has swept this draft away.
    if (!hasCode(error, 'EEXIST', 'ENOENT')) throw error;
  } finally {
    await rm(draft, { force: true });
  }
  return readFile(path, 'utf8');
}

/** Removes what processes left that were killed while they made the file. */
async function sweepDrafts(path: string): Promise<void> {
  const [folder, start] = [dirname(path), `${basename(path)}.`];
  for (const name of await readdir(folder)) {
    if (name.startsWith(start) && name.endsWith('.new'))
      await rm(join(folder, name), { force: true });
  }
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw error;
  }
}

function hasCode(error: unknown, ...codes: string[]): boolean {
  return codes.includes((error as NodeJS.ErrnoException).code ?? '');
}
