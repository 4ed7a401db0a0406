import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { markOf, stateOf } from '../../scripts/lib/test-run.mjs';
import { lastingFolder } from './lasting-folder.js';
import { names } from './sandbox-processes.js';

/**
 * One file for each installation that a test has on an engine: whose, and where. Not in the folder of the run, because
 * an engine outlives that.
 */
const FOLDER = join(lastingFolder(), 'agent-session-test-installations');

/** Remembers an installation until {@link forget}, beyond the end of this process. */
export async function remember(installation: string, host: string): Promise<void> {
  await mkdir(FOLDER, { recursive: true });
  await writeFile(join(FOLDER, installation), JSON.stringify({ mark: markOf(process.pid), host }));
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
      const note = JSON.parse(text) as { mark?: string; host: string };
      return note.host === host && stateOf(note.mark ?? '') === 'dead' ? [installation] : [];
    }),
  );
  return notes.flat();
}
