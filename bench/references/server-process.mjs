import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort, untilListening } from '../lib/ports.mjs';

const STOP_LIMIT_MS = 5_000;

/**
 * Starts another server in a temporary home folder.
 * @param args takes the port and the folder, returns the command line
 * @param prepare creates the files that it needs in the folder
 */
export async function startServer({ program, args, env = {}, prepare = async () => undefined }) {
  const folder = await mkdtemp(join(tmpdir(), 'bench-peer-'));
  const port = await freePort();
  await prepare(folder);
  const child = spawn(program, args(port, folder), {
    cwd: folder,
    stdio: 'ignore',
    env: { PATH: process.env.PATH, HOME: folder, XDG_DATA_HOME: join(folder, 'data'), ...env },
  });
  const ended = new Promise((resolve) => child.once('close', resolve));
  const stop = async () => {
    child.kill('SIGTERM');
    const killer = setTimeout(() => child.kill('SIGKILL'), STOP_LIMIT_MS);
    await ended;
    clearTimeout(killer);
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await untilListening(port);
  } catch (error) {
    await stop();
    throw error;
  }
  return { port, folder, pid: child.pid, stop };
}
