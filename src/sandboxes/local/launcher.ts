import { spawn } from 'node:child_process';
import { chown, mkdir, open, readFile } from 'node:fs/promises';
import { constants } from 'node:fs';
import { createInterface } from 'node:readline';
import { join } from 'node:path';
import { SandboxError } from '../sandbox-error.js';
import { childPipe, feedChild } from '../shared/child-pipes.js';
import { SYSTEM_PATH } from '../shared/layout.js';
import type { LaunchFolder } from '../shared/launch/launch-folder.js';
import type { LaunchAnswer, LaunchRequest } from '../shared/launch/launch-request.js';
import { supervisorEntry } from './paths.js';

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
  prefix: readonly string[];
  view: { node: string; app: string };
  folder: LaunchFolder;
  request: LaunchRequest;
  onAbort: () => Promise<void>;
  signal: AbortSignal;
}): Promise<void> {
  const { prefix, view, folder, request, onAbort, signal } = options;
  const argv = prefix.concat(
    ['/bin/sh', '-c', START_SCRIPT, 'sh', request.folder],
    [view.node, ...NODE_FLAGS, supervisorEntry(view.app)],
  );
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW;
  const log = await open(folder.log, flags, 0o600);
  let answer: LaunchAnswer | null;
  const abort = (): void => void onAbort().catch(() => undefined);
  try {
    const [program = '', ...args] = argv;
    const child = spawn(program, args, {
      stdio: ['pipe', 'pipe', log.fd],
      env: { PATH: SYSTEM_PATH },
      cwd: '/',
      detached: true,
    });
    signal.addEventListener('abort', abort);
    feedChild(child, 0, JSON.stringify(request));
    answer = await new Promise((resolve) => {
      child.once('error', () => resolve(null));
      const lines = createInterface({ input: childPipe(child, 1) });
      lines.once('line', (line) => resolve(JSON.parse(line) as LaunchAnswer));
      lines.once('close', () => resolve(null));
    });
    // From here on it is nobody's child: this process may end before it.
    childPipe(child, 1).destroy();
    child.unref();
  } finally {
    signal.removeEventListener('abort', abort);
    await log.close();
  }
  if (signal.aborted) throw new SandboxError('aborted', 'the launch was aborted');
  if (answer?.ok) return;
  const complaint = answer === null ? await lastLine(join(folder.path, 'log')) : answer.message;
  throw new SandboxError('failed', `the sandbox could not be started: ${complaint}`);
}

async function lastLine(path: string): Promise<string> {
  const text = await readFile(path, 'utf8').catch(() => '');
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const error = lines.find((line) => /^\w*Error\b/.test(line)) ?? lines.at(-1);
  return error?.slice(0, 300) ?? 'its supervisor ended without a word';
}
