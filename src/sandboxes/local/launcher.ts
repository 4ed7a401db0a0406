import { chown, mkdir, readFile } from 'node:fs/promises';
import { SandboxError } from '../sandbox-error.js';
import { enter } from './entry.js';
import type { LaunchFolder } from '../shared/launch/launch-folder.js';
import type { LaunchAnswer, LaunchRequest } from '../shared/launch/launch-request.js';
import { supervisorEntry } from './paths.js';
import type { Spawner } from './spawner/spawner.js';

/** Named pipes for the runtime's output, which Node cannot make itself, and then the supervisor. */
const START_SCRIPT = 'mkfifo -m 0600 -- "$1/stdout" "$1/stderr" 2>/dev/null; shift; exec "$@"';

/** A supervisor mostly waits: a small heap keeps a hundred of them cheap. */
const NODE_FLAGS = [
  '--max-old-space-size=64',
  '--max-semi-space-size=1',
  '--disable-warning=ExperimentalWarning',
];

/** Makes the folder of a launch, as its supervisor's user needs it. */
export async function prepareLaunchFolder(
  folder: LaunchFolder,
  owner: number | null,
): Promise<void> {
  await mkdir(folder.path, { recursive: true, mode: 0o700 });
  if (owner !== null) await chown(folder.path, owner, owner);
}

/**
 * Starts a supervisor, detached, and resolves when its runtime runs.
 * @param prefix what makes the supervisor the sandbox's user
 * @param view `node` and `app` as the supervisor sees them
 * @throws SandboxError `failed` with the supervisor's own words
 */
export async function startSupervisor(options: {
  spawner: Spawner;
  prefix: readonly string[];
  view: { node: string; app: string };
  folder: LaunchFolder;
  request: LaunchRequest;
  onAbort: () => Promise<void>;
  signal: AbortSignal;
}): Promise<void> {
  const { spawner, prefix, view, folder, request, onAbort, signal } = options;
  const argv = prefix.concat(
    ['/bin/sh', '-c', START_SCRIPT, 'sh', request.folder],
    [view.node, ...NODE_FLAGS, supervisorEntry(view.app)],
  );
  const abort = (): void => void onAbort().catch(() => undefined);
  signal.addEventListener('abort', abort);
  const stdin = Buffer.from(JSON.stringify(request));
  const start = async (): Promise<LaunchAnswer> => {
    // Once it has answered it is nobody's child: whoever started it may end before it.
    const { output } = await spawner.run({ argv, stdin, log: folder.log, until: 'line' });
    if (output.startsWith('{')) return JSON.parse(output) as LaunchAnswer;
    return { ok: false, message: await lastLine(folder.log) };
  };
  let answer: LaunchAnswer;
  try {
    answer = await enter(start, (tried) => (tried.ok || signal.aborted ? '' : tried.message));
  } finally {
    signal.removeEventListener('abort', abort);
  }
  if (signal.aborted) throw new SandboxError('aborted', 'the launch was aborted');
  if (answer.ok) return;
  throw new SandboxError('failed', `the sandbox could not be started: ${answer.message}`);
}

async function lastLine(path: string): Promise<string> {
  const text = await readFile(path, 'utf8').catch(() => '');
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const error = lines.find((line) => /^\w*Error\b/.test(line)) ?? lines.at(-1);
  return error?.slice(0, 300) ?? 'its supervisor ended without a word';
}
