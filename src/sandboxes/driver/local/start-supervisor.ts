import { once } from 'node:events';
import type { Socket } from 'node:net';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { enter } from './entry.js';
import type { Command, Launcher } from './launcher/launcher.js';
import { confineProgram } from '../../../supervisor/confine.js';
import type { LaunchFolder } from '../../../supervisor/launch-folder.js';
import type { LaunchAnswer, LaunchRequest } from '../../../supervisor/launch-request.js';
import {
  complaintOf,
  SUPERVISOR_NODE_FLAGS,
  supervisorCommand,
} from '../../../supervisor/start.js';
import { supervisorEntry } from './options.js';

export interface InsideResult {
  exitCode: number;
  /** The end of its output on stdout and stderr. */
  output: string;
}

/**
 * Runs one short, trusted command in a sandbox, without network. It ends with the service. Passes `descriptors` from
 * number 3 on.
 * @throws SandboxError `aborted`, `failed`
 */
export async function runInside(
  launcher: Launcher,
  { descriptors, ...command }: InsideCommand,
): Promise<InsideResult> {
  const fed = descriptors.map((data) => Buffer.from(data));
  const { exitCode, output } = await enter(
    () => launcher.run({ ...command, descriptors: fed }),
    (result) => (result.exitCode === 0 ? '' : result.output),
  );
  if (exitCode !== null) return { exitCode, output };
  throw new SandboxError('failed', `${command.argv[0]} could not be started: ${output}`);
}

/**
 * Starts a trusted command in a sandbox that exchanges data with this process.
 * @returns its standard input and output, once it has sent something
 * @throws SandboxError `failed`, `unavailable`
 */
export async function openInside(
  launcher: Launcher,
  { descriptors, ...command }: Omit<InsideCommand, 'stdin' | 'signal'>,
): Promise<Socket> {
  const fed = descriptors.map((data) => Buffer.from(data));
  const attempt = async () => {
    const { connection, ended } = await launcher.open({ ...command, descriptors: fed });
    // Also emitted at the end.
    await once(connection, 'readable').catch(() => undefined);
    if (connection.readableLength > 0) return { connection, complaint: '' };
    connection.destroy();
    return { connection: null, complaint: (await ended).output };
  };
  const { connection, complaint } = await enter(attempt, (tried) => tried.complaint);
  if (connection !== null) return connection;
  throw new SandboxError('failed', `the sandbox could not be entered: ${complaint}`);
}

type InsideCommand = Pick<Command, 'argv' | 'stdin' | 'env' | 'cwd'> & {
  descriptors: readonly (string | Uint8Array)[];
  signal: AbortSignal;
};

/**
 * Starts a supervisor, detached, and resolves when its runtime runs, or does not.
 * @param prefix what makes the supervisor the sandbox's user
 * @param view `node` and `app` as the supervisor sees them
 */
export async function startSupervisor(options: {
  launcher: Launcher;
  prefix: readonly string[];
  view: { node: string; app: string };
  folder: LaunchFolder;
  /** The launch's folder as the supervisor sees it. */
  seen: string;
  request: LaunchRequest;
  signal: AbortSignal;
}): Promise<LaunchAnswer> {
  const { launcher, prefix, view, folder, seen, request, signal } = options;
  const argv = prefix.concat(
    supervisorCommand(seen, confineProgram(view.app), [
      view.node,
      ...SUPERVISOR_NODE_FLAGS,
      supervisorEntry(view.app),
    ]),
  );
  const stdin = Buffer.from(JSON.stringify(request));
  const start = async (): Promise<LaunchAnswer> => {
    // Once it has answered it is nobody's child: whoever started it may end before it.
    const { output } = await launcher.run({ argv, stdin, log: folder.log, until: 'line' });
    if (output.startsWith('{')) return JSON.parse(output) as LaunchAnswer;
    return { ok: false, message: await complaintOf(folder) };
  };
  return enter(start, (tried) => (tried.ok || signal.aborted ? '' : tried.message));
}
