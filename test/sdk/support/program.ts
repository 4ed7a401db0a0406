import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** The repository's root. */
export const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
/** Debian's: packages of Debian are for this one. */
export const PYTHON = '/usr/bin/python3';

export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

const LIMIT_MS = 200_000;

/** Runs a program to its end, in the repository's root. */
export async function runProgram(
  [file = '', ...args]: readonly string[],
  env: Record<string, string> = {},
): Promise<Ended> {
  const child = spawn(file, args, {
    cwd: ROOT,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: LIMIT_MS,
    killSignal: 'SIGKILL',
  });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, stdout, stderr }));
  });
}

/** Runs a program that has to succeed. @throws Error with what it wrote. */
export async function runTool(...command: string[]): Promise<void> {
  const { code, stdout, stderr } = await runProgram(command);
  if (code !== 0) throw new Error(`${command.join(' ')}: ${code}\n${stdout}\n${stderr}`);
}

/** Starts a program that says `Listening on URL`. @returns the address, and what ends it and tells what it wrote */
export async function startProgram(
  [file = '', ...args]: readonly string[],
  env: Record<string, string>,
): Promise<{ url: string; stop(): Promise<string> }> {
  const child = spawn(file, args, {
    cwd: ROOT,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = new Promise((resolve) => child.once('close', resolve));
  let wrote = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => (wrote += text));
  }
  const stop = async (): Promise<string> => {
    child.kill('SIGTERM');
    await ended;
    return wrote;
  };
  return { url: await addressOf(child, () => wrote), stop };
}

function addressOf(child: ChildProcess, wrote: () => string): Promise<string> {
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', () => reject(new Error(`ended before it listened:\n${wrote()}`)));
    child.stdout?.on('data', () => {
      const url = /Listening on (\S+)\n/.exec(wrote())?.[1];
      if (url !== undefined) resolve(url);
    });
  });
}
