import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from '@jest/globals';
import { LaunchFolder, LaunchFolders } from './launch-folder.js';
import { endScripts, markScript } from './scripts.js';

it('does not take a launch for no script because that cannot be looked up', async () => {
  const launches = mkdtempSync(join(tmpdir(), 'scripts-'));
  const path = join(launches, 'launch');
  mkdirSync(path);
  await markScript(new LaunchFolder(path));
  // The mark becomes a link to itself.
  for (const mark of readdirSync(path)) {
    rmSync(join(path, mark));
    symlinkSync(mark, join(path, mark));
  }
  await expect(endScripts(new LaunchFolders(launches))).rejects.toMatchObject({ code: 'ELOOP' });
  rmSync(launches, { recursive: true });
});
