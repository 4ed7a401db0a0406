/**
 * Ends launches inside of their container. Arguments: `launch`, a launch's folder and the kernel user of what runs
 * without a supervisor; or `scripts` and the folder of all launches, to end those scripts that a dead service left.
 */
import { existsSync } from 'node:fs';
import { endLaunch, sweepLaunch } from '../../shared/launch/launch-end.js';
import { LaunchFolder, LaunchFolders } from '../../shared/launch/launch-folder.js';
import { endScripts } from '../../shared/launch/scripts.js';

const [, , mode = '', path = '', uid = ''] = process.argv;
if (mode === 'scripts') {
  await endScripts(new LaunchFolders(path));
} else if (existsSync(path)) {
  const folder = new LaunchFolder(path);
  await endLaunch(folder);
  sweepLaunch(folder, Number(uid));
  const started = folder.readStart();
  // Of a supervisor that could not say so itself; the first record stands.
  if (started !== null && 'supervisor' in started) {
    folder.recordExit({ reason: 'killed', exitCode: null });
  }
}
