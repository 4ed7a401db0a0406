import { spawn } from 'node:child_process';
import { SandboxError } from '../sandbox-error.js';
import { feedChild, killGroup } from '../shared/child-pipes.js';
import { SYSTEM_PATH } from '../shared/layout.js';

export interface InsideResult {
  exitCode: number;
  /** The end of what it wrote to stdout and stderr. */
  output: string;
}

const KEPT_OUTPUT = 4096;

/**
 * Runs one short, trusted command in a sandbox, as a child of this process and with no network: it ends with the
 * service. `descriptors` are fed to it from number 3 on.
 * @throws SandboxError `aborted`, `failed`
 */
export function runInside(options: {
  argv: readonly string[];
  stdin: Buffer;
  descriptors: readonly (string | Buffer)[];
  env?: Readonly<Record<string, string>>;
  cwd?: string;
  signal: AbortSignal;
}): Promise<InsideResult> {
  const { argv, stdin, descriptors, signal } = options;
  if (signal.aborted)
    return Promise.reject(new SandboxError('aborted', 'the operation was aborted'));
  const [program = '', ...args] = argv;
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      stdio: ['pipe', 'pipe', 'pipe', ...descriptors.map(() => 'pipe' as const)],
      env: options.env ?? { PATH: SYSTEM_PATH },
      cwd: options.cwd ?? '/',
      detached: true,
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        output = (output + text).slice(-KEPT_OUTPUT);
      });
    }
    feedChild(child, 0, stdin);
    for (const [index, data] of descriptors.entries()) feedChild(child, index + 3, data);
    const abort = (): void => killGroup(child);
    signal.addEventListener('abort', abort);
    child.once('error', (error) => {
      signal.removeEventListener('abort', abort);
      reject(new SandboxError('failed', `${program} could not be started`, { cause: error }));
    });
    child.once('close', (code) => {
      signal.removeEventListener('abort', abort);
      if (signal.aborted) reject(new SandboxError('aborted', 'the operation was aborted'));
      else resolve({ exitCode: code ?? 137, output: output.trim() });
    });
  });
}
