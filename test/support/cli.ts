import { execFile } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PATIENCE_MS } from './patience.js';
import { ENCRYPTION_KEYS } from './service.js';

const MAIN = join(
  dirname(fileURLToPath(import.meta.url)),
  '..',
  '..',
  'dist',
  'src',
  'cli',
  'main.js',
);

export interface CliResult {
  code: number;
  stdout: string;
  stderr: string;
  /** What it printed with `--json`. */
  json: Record<string, unknown>;
}

/** Runs an operator's command as a process of its own. @param input its standard input */
export async function runCli(
  args: readonly string[],
  env: Record<string, string | undefined>,
  input = '',
): Promise<CliResult> {
  return new Promise((resolve) => {
    const child = execFile(
      process.execPath,
      [MAIN, ...args],
      {
        timeout: PATIENCE_MS,
        env: {
          ...process.env,
          NODE_OPTIONS: undefined,
          NODE_ENV: undefined,
          ENCRYPTION_KEYS,
          ...env,
        },
      },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
        const json = args.includes('--json') && code === 0 ? JSON.parse(stdout) : {};
        resolve({ code, stdout, stderr, json: json as Record<string, unknown> });
      },
    );
    // A command that does not read its input may end before it is written.
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(input);
  });
}
