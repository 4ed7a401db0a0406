import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { LaunchOptions, ScriptResult, SpoolEvent } from './calls.js';
import { isThere } from '../common/missing-file.js';
import { SandboxError } from './sandbox-error.js';
import { OutputTail } from './output-tail.js';
import { endLaunch } from './launch-end.js';
import type { LaunchFolder, LaunchFolders } from './launch-folder.js';

/** The maximum output in a script's result. Bytes. */
export const TAIL_BYTES = 8 * 1024;
/** A script's output is not kept, so this limit only stops scripts that do nothing but print. */
const OUTPUT_LIMIT = 256 * 1024 * 1024;
const LONGEST_MS = 24 * 60 * 60 * 1000;

/** Standard input contains the script. The script's own input is empty, so that no command consumes its lines. */
const COMMAND = ['/bin/bash', '-c', 'exec /bin/bash /dev/fd/9 9<&0 </dev/null'] as const;

const REASONS: Readonly<Record<string, string>> = {
  deadline: 'the script took too long',
  output_limit: 'the script wrote too much output',
  disk_limit: 'the sandbox is out of disk space',
  memory_limit: 'the script used too much memory',
  killed: 'the script was killed',
  lost: 'the script was interrupted',
};

/** The file in a launch's folder that marks it as a script. */
const SCRIPT_MARK = 'script';

/** Marks a launch as a script. A script must not outlive the process that waits for it. */
export async function markScript(folder: LaunchFolder): Promise<void> {
  await writeFile(join(folder.path, SCRIPT_MARK), '', { mode: 0o600 });
}

/** Ends scripts whose waiting process died, because they would run at the same time as the next script. */
export async function endScripts(launches: LaunchFolders): Promise<void> {
  for (const id of await launches.launchIds()) {
    const folder = launches.launch(id);
    if (!(await isThere(join(folder.path, SCRIPT_MARK)))) continue;
    await endLaunch(folder);
    await rm(folder.path, { recursive: true, force: true });
  }
}

/** The launch of a script. */
export function scriptCommand(
  script: string,
): Pick<LaunchOptions, 'command' | 'stdin' | 'deadline' | 'outputLimit'> {
  return {
    command: COMMAND,
    stdin: script,
    deadline: Date.now() + LONGEST_MS,
    outputLimit: OUTPUT_LIMIT,
  };
}

/**
 * Waits for the end of a script.
 * @param events the events of its launch, from the start
 * @throws SandboxError `failed` if it did not end by itself
 */
export async function scriptResult(events: AsyncIterable<SpoolEvent>): Promise<ScriptResult> {
  const tail = new OutputTail(TAIL_BYTES);
  for await (const event of events) {
    if (event.kind === 'chunk') tail.add(event.data);
    else if (event.reason === 'exited') {
      return { exitCode: event.exitCode ?? 0, outputTail: tail.toString() };
    } else throw new SandboxError('failed', REASONS[event.reason] ?? event.reason);
  }
  throw new SandboxError('failed', 'the script was interrupted');
}
