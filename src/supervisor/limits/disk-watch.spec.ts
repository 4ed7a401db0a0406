import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { watchDisk } from './disk-watch.js';
import { Uncountable } from './look.js';

const MiB = 2 ** 20;
let volume: string;
let system: string;
let child: ChildProcess | undefined;

beforeEach(() => {
  // Two file systems, as a container has them.
  volume = mkdtempSync('/dev/shm/volume-');
  system = mkdtempSync(join(tmpdir(), 'system-'));
});

afterEach(async () => {
  if (child !== undefined) {
    const gone = new Promise((resolve) => child?.once('exit', resolve));
    child.kill('SIGKILL');
    await gone;
    child = undefined;
  }
  rmSync(volume, { recursive: true });
  rmSync(system, { recursive: true });
});

it('counts files without a name on the file system of changed files', async () => {
  const disk = { kind: 'folders', folders: [volume] } as const;
  const changed = { root: system, since: Date.now() };
  const hold = 'exec 9<>held; rm held; head -c 5M /dev/zero >&9; echo; read';
  child = spawn('bash', ['-c', hold], { cwd: system, stdio: ['pipe', 'pipe', 'inherit'] });
  await new Promise((resolve) => child?.stdout?.once('data', resolve));
  const pids = () => [child?.pid ?? 0];
  expect(await watchDisk({ ...disk, changed }, 4 * MiB, pids).exceeded()).toBe(true);
  expect(await watchDisk(disk, 4 * MiB, pids).exceeded()).toBe(false);
});

it('takes what is too much to be counted for too much, and what cannot be counted after a while', async () => {
  const failing = (error: Error) =>
    watchDisk({ kind: 'folders', folders: [volume] }, 4 * MiB, () => {
      throw error;
    });
  expect(await failing(new Uncountable('too many')).exceeded()).toBe(true);
  const unlucky = failing(new Error('EMFILE'));
  for (let i = 0; i < 20; i += 1) expect(await unlucky.exceeded()).toBe(false);
  expect(await unlucky.exceeded()).toBe(true);
});

it('rejects when the file system of a sandbox cannot be looked at', async () => {
  const watch = watchDisk({ kind: 'volume', path: join(volume, 'missing') }, 4 * MiB, () => []);
  await expect(watch.exceeded()).rejects.toMatchObject({ code: 'ENOENT' });
});
