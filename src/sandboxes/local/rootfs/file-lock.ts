import { spawn } from 'node:child_process';

/**
 * Runs `work` while holding an exclusive lock on a file, across processes. The kernel lets go of the lock when this
 * process ends, however it ends.
 * @throws the signal's reason if it is aborted while waiting for the lock
 */
export async function withFileLock<T>(
  path: string,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T> {
  signal.throwIfAborted();
  // Its stdin is this process: `cat` ends, and with it the lock, when this process closes it or is gone.
  const holder = spawn('flock', ['--exclusive', path, 'sh', '-c', 'echo && exec cat'], {
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  holder.stdin.on('error', () => undefined);
  const ended = new Promise<void>((resolve) => holder.once('close', () => resolve()));
  try {
    await new Promise<void>((resolve, reject) => {
      const onAbort = (): void => reject(signal.reason as Error);
      signal.addEventListener('abort', onAbort, { once: true });
      const settled = (): void => signal.removeEventListener('abort', onAbort);
      holder.once('error', (error) => {
        settled();
        reject(new Error(`flock does not start: ${error.message}`));
      });
      holder.once('exit', () => {
        settled();
        reject(new Error(`cannot lock ${path}`));
      });
      holder.stdout.once('data', () => {
        settled();
        resolve();
      });
    });
    return await work();
  } finally {
    holder.stdin.end();
    if (signal.aborted) holder.kill();
    await ended;
  }
}
