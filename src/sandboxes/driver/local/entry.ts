import { join } from 'node:path';
import { existsSync } from 'node:fs';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { becomeUser, confineProgram } from '../../../supervisor/confine.js';
import { viewArguments, type View } from './bwrap-arguments.js';
import { barrierTo, type Host } from './host.js';

/** How a process of the service becomes one that has a sandbox's kernel user and sees what it needs. */
export interface Entry {
  /** Program and arguments to put before the command; may be empty. */
  prefix: readonly string[];
  /** Where things are for that command. */
  view: View;
}

/** Existing folders over which a private one may be laid; the first that is there is taken. */
export const VIEW_BASES = ['/mnt', '/media', '/srv', '/opt'];

/**
 * What bubblewrap says when a mount of the host went while it took the host's mounts over, as those of containers do.
 * Nothing has been run then, and the next try finds other mounts.
 */
const MOUNT_GONE =
  /Unable to apply mount flags: remount .*: (No such file or directory|Invalid argument)/;
const ENTRIES = 4;

/** Enters a sandbox, again if only a mount of the host went meanwhile. @param words what bubblewrap said, if it failed */
export async function enter<Result>(
  attempt: () => Promise<Result>,
  words: (result: Result) => Promise<string> | string,
): Promise<Result> {
  for (let tries = 1; ; tries += 1) {
    const result = await attempt();
    if (tries === ENTRIES || !MOUNT_GONE.test(await words(result))) return result;
  }
}

/**
 * Works out the way into a sandbox.
 * @param uid the sandbox's kernel user, or `null` for the service's own
 * @throws SandboxError `unavailable` if the user could not reach what it needs
 */
export function entryFor(
  host: Host,
  origin: View,
  uid: number | null,
  dieWithService: boolean,
): Entry {
  if (uid === null) return { prefix: [], view: origin };
  if (host.bwrap === null) {
    throw new SandboxError('unavailable', 'bwrap (bubblewrap) is needed');
  }
  if (host.mounts) {
    const base = VIEW_BASES.find((path) => existsSync(path));
    if (base === undefined) throw new SandboxError('unavailable', 'the host has no folder /mnt');
    const view: View = {
      node: join(base, 'node'),
      app: join(base, 'app'),
      sandbox: join(base, 'sandbox'),
      etc: join(base, 'etc'),
      tools: origin.tools === null ? null : join(base, 'tools'),
      programs: origin.programs === null ? null : join(base, 'programs'),
      gateway: origin.gateway === null ? null : join(base, 'gateway'),
    };
    const dying = dieWithService ? ['--die-with-parent'] : [];
    return {
      prefix: [
        host.bwrap,
        ...dying,
        ...viewArguments(origin, view, base),
        '--',
        ...becomeUser(confineProgram(view.app), uid),
      ],
      view,
    };
  }
  const { node, app, sandbox, etc, programs, gateway } = origin;
  for (const path of [node, app, sandbox, etc, programs, gateway]) {
    if (path === null) continue;
    const barrier = barrierTo(path);
    if (barrier !== null) {
      throw new SandboxError(
        'unavailable',
        `the users of sandboxes cannot reach ${path}: let others pass ${barrier} (chmod o+x), ` +
          'or give the service the capability SYS_ADMIN',
      );
    }
  }
  return { prefix: becomeUser(confineProgram(origin.app), uid), view: origin };
}
