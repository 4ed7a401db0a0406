import { existsSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { LaunchOptions, ScriptResult, SpoolEvent } from '../../sandbox-driver.js';
import { SandboxError } from '../../sandbox-error.js';
import { endLaunch } from './launch-end.js';
import type { LaunchFolder, LaunchFolders } from './launch-folder.js';

const TAIL_BYTES = 8 * 1024;
/** A script's output is not kept, so this only stops one that does nothing but print. */
const OUTPUT_LIMIT = 256 * 1024 * 1024;
const LONGEST_MS = 24 * 60 * 60 * 1000;

/** Standard input holds the script; what the script itself reads is empty, so that no command eats its lines. */
const COMMAND = ['/bin/bash', '-c', 'exec /bin/bash /dev/fd/9 9<&0 </dev/null'] as const;

const REASONS: Readonly<Record<string, string>> = {
  deadline: 'the script took too long',
  output_limit: 'the script wrote too much output',
  disk_limit: 'the sandbox is out of disk space',
  memory_limit: 'the script used too much memory',
  killed: 'the script was killed',
  lost: 'the script was interrupted',
};

/** The file in a launch's folder that says that it is a script's. */
export const SCRIPT_MARK = 'script';

/** Notes that a launch is a script's: one that outlives whoever waits for it is of no use. */
export async function markScript(folder: LaunchFolder): Promise<void> {
  await writeFile(join(folder.path, SCRIPT_MARK), '', { mode: 0o600 });
}

/** Ends the scripts of a process that died while it waited for them: the next one would meet them. */
export async function endScripts(launches: LaunchFolders): Promise<void> {
  for (const id of await launches.launchIds()) {
    const folder = launches.launch(id);
    if (!existsSync(join(folder.path, SCRIPT_MARK))) continue;
    await endLaunch(folder);
    await rm(folder.path, { recursive: true, force: true });
  }
}

/** Text of the last bytes, not beginning in mid-character. */
function decodeTail(tail: Buffer): string {
  let start = 0;
  while (start < 3 && ((tail[start] ?? 0) & 0xc0) === 0x80) start += 1;
  return tail.subarray(start).toString('utf8');
}

/**
 * Runs a script as a launch of its own and waits for its end.
 * @throws SandboxError `aborted` once nothing of it is left; `failed` if it did not end by itself
 */
export async function runLaunchedScript(options: {
  script: string;
  signal: AbortSignal;
  start: (
    command: Pick<LaunchOptions, 'command' | 'stdin' | 'deadline' | 'outputLimit'>,
  ) => Promise<void>;
  follow: (signal: AbortSignal) => AsyncIterable<SpoolEvent>;
  kill: () => Promise<void>;
}): Promise<ScriptResult> {
  const { script, signal, start, follow, kill } = options;
  await start({
    command: COMMAND,
    stdin: script,
    deadline: Date.now() + LONGEST_MS,
    outputLimit: OUTPUT_LIMIT,
  });
  let tail: Buffer = Buffer.alloc(0);
  try {
    for await (const event of follow(signal)) {
      if (event.kind === 'chunk') {
        tail = Buffer.concat([tail, event.data]);
        if (tail.length > TAIL_BYTES) tail = Buffer.from(tail.subarray(-TAIL_BYTES));
      } else if (event.reason === 'exited') {
        return { exitCode: event.exitCode ?? 0, outputTail: decodeTail(tail) };
      } else {
        throw new SandboxError('failed', REASONS[event.reason] ?? event.reason);
      }
    }
    throw new SandboxError('failed', 'the script was interrupted');
  } catch (error) {
    await kill();
    throw error;
  }
}
