import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { SandboxError } from '../../sandbox-error.js';
import { becomeUser, VIEW_BASES } from '../entry.js';
import { type Host } from '../host.js';
import { SYSTEM_PATH } from '../../shared/layout.js';
import { runInside } from '../inside.js';
import type { Spawner } from '../spawner/spawner.js';

/** With what a program of the host's is run for the sandboxes' sake. */
export interface Workbench {
  host: Host;
  spawner: Spawner;
  /** The kernel user to run it as where the service is root; `null` for the service's own. */
  user: number | null;
  nodePath: string;
  /** The folder of tools, see `ensureTools`. */
  toolsDir: string | null;
}

interface Places {
  node: string;
  tools: string | null;
  folder: string;
}

/**
 * Runs a trusted program on the host with the host's network, in `folder`, which is all that it can write to. As root it
 * is a user without rights that runs it, and everything in the folder belongs to the service again afterwards.
 */
export async function runAsNobody(
  options: Workbench & {
    folder: string;
    command: (places: Places) => readonly string[];
    env: (folder: string) => Readonly<Record<string, string>>;
    signal: AbortSignal;
  },
): Promise<{ exitCode: number; output: string }> {
  const { spawner, folder, user, signal } = options;
  const { prefix, places } = wayTo(options);
  if (user !== null) await giveTo(spawner, user, folder);
  try {
    return await runInside(spawner, {
      argv: [...prefix, ...options.command(places)],
      stdin: Buffer.alloc(0),
      descriptors: [],
      env: { PATH: SYSTEM_PATH, LANG: 'C.UTF-8', ...options.env(places.folder) },
      signal,
    });
  } finally {
    if (user !== null) await giveTo(spawner, 0, folder);
    await hostTool(spawner, 'chmod', ['-R', 'u=rwX,go=rX', '--', folder]);
  }
}

function wayTo(options: Workbench & { folder: string }): { prefix: string[]; places: Places } {
  const { host, user, nodePath, toolsDir, folder } = options;
  const here = { node: nodePath, tools: toolsDir, folder };
  if (user === null) return { prefix: [], places: here };
  if (host.setpriv === null) {
    throw new SandboxError('unavailable', 'setpriv is not installed: install util-linux');
  }
  const become = [...becomeUser(host.setpriv, user).slice(0, -1), '--no-new-privs', '--'];
  const base = VIEW_BASES.find((path) => existsSync(path));
  if (!host.mounts || host.bwrap === null || base === undefined)
    return { prefix: become, places: here };
  // The originals may lie below a folder that no other user may pass.
  const view = {
    node: join(base, 'node'),
    tools: toolsDir === null ? null : join(base, 'tools'),
    folder: join(base, 'work'),
  };
  return {
    prefix: [
      [host.bwrap, '--die-with-parent', '--cap-add', 'ALL'],
      ['--ro-bind', '/', '/', '--dev', '/dev', '--tmpfs', '/tmp', '--tmpfs', base],
      ['--ro-bind', nodePath, view.node, '--bind', folder, view.folder],
      toolsDir === null || view.tools === null ? [] : ['--ro-bind', toolsDir, view.tools],
      ['--', ...become],
    ].flat(),
    places: view,
  };
}

function giveTo(spawner: Spawner, user: number, folder: string): Promise<void> {
  return hostTool(spawner, 'chown', ['-R', '-h', `${user}:${user}`, '--', folder]);
}

async function hostTool(spawner: Spawner, program: string, args: readonly string[]): Promise<void> {
  const { exitCode, output } = await spawner.run({ argv: [program, ...args] });
  if (exitCode !== 0) throw new Error(`${program} failed: ${output || `exit code ${exitCode}`}`);
}
