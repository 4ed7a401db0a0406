import { chown, mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { confine, type Confinement } from './confine.js';
import type { LaunchFolder } from './launch-folder.js';

/** A supervisor is mostly idle, so a small heap makes a hundred of them cheap. */
export const SUPERVISOR_NODE_FLAGS = [
  '--max-old-space-size=64',
  '--max-semi-space-size=1',
  '--disable-warning=ExperimentalWarning',
];

/**
 * The command that starts the supervisor of one launch, which reads its `LaunchRequest` from standard input.
 * @param folder the launch's folder, as the supervisor sees it
 * @param program the program that confines the runtime, as the supervisor sees it
 * @param main Node and `main.ts`, as the supervisor sees them
 */
export function supervisorCommand(
  folder: string,
  program: string,
  main: readonly string[],
  how: Confinement = {},
): string[] {
  return [
    ...confine(program, {
      ...how,
      // Creates the pipes for the runtime's output, which Node cannot, and keeps orphans of the runtime below the
      // supervisor.
      fifos: ['stdout', 'stderr'].map((name) => join(folder, name)),
      subreaper: true,
    }),
    ...main,
    folder,
  ];
}

/** Creates the folder of a launch with the permissions that its supervisor's user needs. */
export async function prepareLaunchFolder(
  folder: LaunchFolder,
  owner: number | null,
): Promise<void> {
  await mkdir(folder.path, { recursive: true, mode: 0o700 });
  if (owner !== null) await chown(folder.path, owner, owner);
}

/** The reason why a supervisor did not start its launch, from its own output. */
export async function complaintOf(folder: LaunchFolder): Promise<string> {
  const text = await readFile(folder.log, 'utf8').catch(() => '');
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const error = lines.find((line) => /^\w*Error\b/.test(line)) ?? lines.at(-1);
  return error?.slice(0, 300) ?? 'its supervisor ended without an error message';
}
