import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { names } from './sandbox-processes.js';

/** One file for each installation that a test has on an engine: whose, and where. */
const FOLDER = join(tmpdir(), 'agent-session-test-installations');

/** Remembers an installation until {@link forget}, beyond the end of this process. */
export async function remember(installation: string, host: string): Promise<void> {
  await mkdir(FOLDER, { recursive: true });
  await writeFile(join(FOLDER, installation), JSON.stringify({ pid: process.pid, host }));
}

export async function forget(installation: string): Promise<void> {
  await rm(join(FOLDER, installation), { force: true });
}

/** The installations on an engine whose test run is gone and has not removed them: it was killed. */
export async function abandoned(host: string): Promise<string[]> {
  const notes = await Promise.all(
    names(FOLDER).map(async (installation) => {
      const text = await readFile(join(FOLDER, installation), 'utf8').catch(() => '');
      // Another run may be writing or removing it just now.
      if (!text.endsWith('}')) return [];
      const note = JSON.parse(text) as { pid: number; host: string };
      return note.host === host && !isAlive(note.pid) ? [installation] : [];
    }),
  );
  return notes.flat();
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
