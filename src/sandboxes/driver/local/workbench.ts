import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../../common/package-root.js';
import { confine, confineProgram } from '../../../supervisor/confine.js';
import { SYSTEM_PATH } from '../../../supervisor/sandbox-options.js';
import { VIEW_BASES } from './entry.js';
import type { Host } from './host.js';
import type { Launcher } from './launcher/launcher.js';
import { runInside } from './start-supervisor.js';

/** How to run a program of the host that prepares files for sandboxes. */
export interface Workbench {
  host: Host;
  launcher: Launcher;
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
 * Runs a trusted program on the host with the host's network. It can write only to `folder`. If the service is root,
 * the program runs as an unprivileged user, and afterwards the folder's contents are given back to the service.
 */
export async function runAsNobody(
  options: Workbench & {
    folder: string;
    command: (places: Places) => readonly string[];
    env: (folder: string) => Readonly<Record<string, string>>;
    signal: AbortSignal;
  },
): Promise<{ exitCode: number; output: string }> {
  const { launcher, folder, user, signal } = options;
  const { prefix, places } = wayTo(options);
  if (user !== null) await giveTo(launcher, user, folder);
  try {
    return await runInside(launcher, {
      argv: [...prefix, ...options.command(places)],
      stdin: Buffer.alloc(0),
      descriptors: [],
      env: { PATH: SYSTEM_PATH, LANG: 'C.UTF-8', ...options.env(places.folder) },
      signal,
    });
  } finally {
    if (user !== null) await giveTo(launcher, 0, folder);
    await hostTool(launcher, 'chmod', ['-R', 'u=rwX,go=rX', '--', folder]);
  }
}

function wayTo(options: Workbench & { folder: string }): { prefix: string[]; places: Places } {
  const { host, user, nodePath, toolsDir, folder } = options;
  const here = { node: nodePath, tools: toolsDir, folder };
  if (user === null) return { prefix: [], places: here };
  const become = (app: string): string[] =>
    confine(confineProgram(app), { user, dropCapabilities: true, noNewPrivileges: true });
  const base = VIEW_BASES.find((path) => existsSync(path));
  if (!host.mounts || host.bwrap === null || base === undefined)
    return { prefix: become(packageRoot()), places: here };
  // Copies, because the originals may be below a folder that other users cannot enter.
  const app = join(base, 'app');
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
      [
        '--perms',
        '0755',
        '--dir',
        app,
        '--ro-bind',
        join(packageRoot(), 'dist'),
        join(app, 'dist'),
      ],
      ['--', ...become(app)],
    ].flat(),
    places: view,
  };
}

function giveTo(launcher: Launcher, user: number, folder: string): Promise<void> {
  return hostTool(launcher, 'chown', ['-R', '-h', `${user}:${user}`, '--', folder]);
}

async function hostTool(
  launcher: Launcher,
  program: string,
  args: readonly string[],
): Promise<void> {
  const { exitCode, output } = await launcher.run({ argv: [program, ...args] });
  if (exitCode !== 0) throw new Error(`${program} failed: ${output || `exit code ${exitCode}`}`);
}
