import { spawn } from 'node:child_process';
import type { Writable } from 'node:stream';
import { killGroup } from '../../../../supervisor/runtime-process.js';
import { seccompFilter } from '../../../../supervisor/seccomp/profiles.js';

/** The template could not be made. The message has the reason and, if there is one, the command that helps. */
export class RootfsError extends Error {
  override readonly name = 'RootfsError';
}

/** The PATH on the host and inside. */
export const CONTAINED_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const SECCOMP_FD = 3;
const TAIL_LINES = 15;

export interface ContainedOptions {
  /** The mounts, as arguments of bubblewrap. */
  mounts: readonly string[];
  command: readonly string[];
  env?: Readonly<Record<string, string>>;
  /** The standard input. */
  input?: string;
  signal: AbortSignal;
}

/**
 * Runs a program as root of a user namespace with only one user, with the host's network. Changes of owner succeed
 * without effect, so package managers work, and all new files belong to the user of this process. The program dies with
 * this process.
 * @throws RootfsError with the end of its output if it fails; the signal's reason if aborted
 */
export function runContained(options: ContainedOptions): Promise<void> {
  const { signal } = options;
  signal.throwIfAborted();
  const environment = { PATH: CONTAINED_PATH, LANG: 'C.UTF-8', HOME: '/root', ...options.env };
  const child = spawn(
    'bwrap',
    [
      ['--unshare-user', '--uid', '0', '--gid', '0', '--cap-add', 'ALL'],
      ['--unshare-pid', '--unshare-ipc', '--unshare-uts', '--die-with-parent', '--new-session'],
      options.mounts,
      ['--proc', '/proc', '--ro-bind', '/proc/sys', '/proc/sys'],
      ['--seccomp', String(SECCOMP_FD), '--clearenv'],
      Object.entries(environment).flatMap(([name, value]) => ['--setenv', name, value]),
      ['--', ...options.command],
    ].flat(),
    {
      stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
      cwd: '/',
      env: { PATH: CONTAINED_PATH },
      detached: true,
    },
  );
  const feed = (pipe: Writable, data: string | Buffer): void => {
    pipe.on('error', () => undefined);
    pipe.end(data);
  };
  feed(child.stdio[SECCOMP_FD] as Writable, seccompFilter('setup', process.arch));
  feed(child.stdin, options.input ?? '');

  const tail: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    let rest = '';
    stream.setEncoding('utf8').on('data', (text: string) => {
      const lines = (rest + text).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        tail.push(line);
        if (tail.length > TAIL_LINES) tail.shift();
      }
    });
  }

  return new Promise((resolve, reject) => {
    const kill = (): void => killGroup(child);
    signal.addEventListener('abort', kill, { once: true });
    child.once('error', (error) => {
      signal.removeEventListener('abort', kill);
      reject(new RootfsError(`bubblewrap does not start: ${error.message}`));
    });
    child.once('close', (code, killedBy) => {
      signal.removeEventListener('abort', kill);
      if (signal.aborted) return reject(signal.reason as Error);
      if (code === 0) return resolve();
      const how = killedBy ?? `exit code ${String(code)}`;
      reject(new RootfsError(`${options.command[0] ?? ''} failed (${how}):\n${tail.join('\n')}`));
    });
  });
}
