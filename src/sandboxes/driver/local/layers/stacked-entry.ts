import { join } from 'node:path';
import { packageRoot } from '../../../../common/package-root.js';

/** The shared layers of a sandbox, read-only, the topmost first. Absolute paths. */
export interface Stack {
  /** The name of the layer with the environment's software; `null` if nothing is installed yet. */
  layer: string | null;
  /** Layers below the home; none while nothing is installed. */
  home: readonly string[];
  /** Layers of the system; none if the sandbox uses the host's. */
  system: readonly string[];
  /** Whether the files may be lost when the host crashes, so that nothing waits for the disk. */
  volatile?: true;
}

/** The folders of a sandbox. */
interface Folders {
  path: string;
  /** Where its own files are, and where they are mounted. */
  disk: string;
  files: string;
  home: string;
}

/** The compiled `native/stack.c`. */
export function stackProgram(): string {
  return join(packageRoot(), 'dist', 'native', process.arch, 'stack');
}

/**
 * What is put before a command so that it finds a sandbox's files mounted on its layers, where none but it sees that.
 * The workspace and /tmp are always the sandbox's own folders, because other entries may write to them at the same time,
 * and an overlay does not notice that.
 */
export function stackedEntry(folder: Folders, stack: Stack, uid: number | null): string[] {
  const own = join(folder.disk, 'files');
  const bind = (name: string): string[] => ['--bind', join(own, name), join(folder.files, name)];
  const overlay = (target: string, upper: string, layers: readonly string[]): string[] => [
    ...['--overlay', target, upper, String(layers.length)],
    ...layers,
  ];
  return [
    [stackProgram()],
    uid === null ? [] : ['--owner', String(uid)],
    stack.volatile ? ['--volatile'] : [],
    ['--work', join(folder.disk, 'work')],
    bind('workspace'),
    bind('tmp'),
    stack.home.length === 0 ? bind('home') : overlay(folder.home, join(own, 'home'), stack.home),
    stack.system.length === 0
      ? []
      : overlay(join(folder.path, 'system'), join(folder.disk, 'system'), stack.system),
    ['--'],
  ].flat();
}
