import { SandboxError } from '../sandbox-error.js';
import { enter } from './entry.js';
import type { Command, Spawner } from './spawner/spawner.js';

export interface InsideResult {
  exitCode: number;
  /** The end of what it wrote to stdout and stderr. */
  output: string;
}

/**
 * Runs one short, trusted command in a sandbox, with no network: it ends with the service. `descriptors` are fed to it
 * from number 3 on.
 * @throws SandboxError `aborted`, `failed`
 */
export async function runInside(
  spawner: Spawner,
  { descriptors, ...command }: InsideCommand,
): Promise<InsideResult> {
  const fed = descriptors.map((data) => Buffer.from(data));
  const { exitCode, output } = await enter(
    () => spawner.run({ ...command, descriptors: fed }),
    (result) => (result.exitCode === 0 ? '' : result.output),
  );
  if (exitCode !== null) return { exitCode, output };
  throw new SandboxError('failed', `${command.argv[0]} could not be started: ${output}`);
}

type InsideCommand = Pick<Command, 'argv' | 'stdin' | 'env' | 'cwd'> & {
  descriptors: readonly (string | Uint8Array)[];
  signal: AbortSignal;
};
