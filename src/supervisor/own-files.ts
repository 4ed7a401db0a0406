/**
 * Changes files inside a container or machine as its root, without using its programs. Arguments:
 * `give`, a user and folders, to change the owner of the folders with their contents; or `own`,
 * to give the file system's root to root, because a user who can write there can move the parent folders of mounts.
 */
import { chmodSync, closeSync, constants, lchownSync, openSync, readdirSync } from 'node:fs';

const FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/** Uses descriptors, so that a folder that is replaced by a link cannot redirect it. */
function give(path: string, user: number): void {
  let fd: number;
  try {
    fd = openSync(path, FLAGS);
  } catch {
    return;
  }
  try {
    const folder = `/proc/self/fd/${fd}`;
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      try {
        lchownSync(`${folder}/${entry.name}`, user, user);
      } catch {
        // It was removed in the meantime.
      }
      if (entry.isDirectory()) give(`${folder}/${entry.name}`, user);
    }
  } finally {
    closeSync(fd);
  }
}

const [, , mode = '', ...args] = process.argv;
if (mode === 'give') {
  const [user = '', ...folders] = args;
  for (const folder of folders) {
    lchownSync(folder, Number(user), Number(user));
    give(folder, Number(user));
  }
} else if (mode === 'own') {
  lchownSync('/', 0, 0);
  chmodSync('/', 0o755);
}
