import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { NODE, ROOT } from './project.mjs';
import { complain } from './output.mjs';

/** The service bounds its own shutdown; this is for one that hangs. */
const KILL_AFTER_MS = 60_000;
/** npm passes on the signal that the terminal sent to all of us: one key press, one signal. */
const SAME_SIGNAL_MS = 500;
const PARENT_POLL_MS = 500;

/**
 * Runs the built service in the foreground of this process and passes signals on to it.
 *
 * It gets an IPC channel whose end tells it that this process is gone, and a process group of its
 * own, so that it sees each signal once.
 *
 * @returns {Promise<number>} its exit code, or 128 and the signal's number
 */
export function runService() {
  const service = spawn(NODE, ['--enable-source-maps', 'dist/src/main.js'], {
    cwd: ROOT,
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
    detached: true,
  });
  const last = new Map();
  let killer;
  const stop = (signal) => {
    const now = Date.now();
    if (now - (last.get(signal) ?? 0) < SAME_SIGNAL_MS) return;
    last.set(signal, now);
    service.kill(signal);
    killer ??= setTimeout(() => {
      complain(`The service did not stop within ${KILL_AFTER_MS / 1000} s, killing it.`);
      service.kill('SIGKILL');
    }, KILL_AFTER_MS);
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => stop(signal));
  const watch = watchNpm(() => stop('SIGTERM'));
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(killer);
      clearInterval(watch);
    };
    service.once('error', (error) => {
      end();
      reject(error);
    });
    service.once('exit', (code, signal) => {
      end();
      resolve(code ?? 128 + constants.signals[signal]);
    });
  });
}

/**
 * Under npm, a parent that changes means that npm was killed, and nobody will pass signals on. Some
 * shells stay between npm and its script; then it is the shell's parent that changes.
 */
function watchNpm(onGone) {
  if (process.env.npm_lifecycle_event === undefined) return undefined;
  const parent = process.ppid;
  const [program, option] = commandLine(parent);
  const shell = /(^|\/)(ba|da)?sh$/.test(program ?? '') && option === '-c';
  const ancestry = () => [process.ppid, ...(shell ? [parentOf(parent)] : [])].join();
  const before = ancestry();
  return setInterval(() => {
    if (ancestry() !== before) onGone();
  }, PARENT_POLL_MS);
}

function commandLine(pid) {
  return readProc(`${pid}/cmdline`).split('\0');
}

function parentOf(pid) {
  // The name in brackets may itself hold spaces and brackets; the parent is two fields after it.
  return readProc(`${pid}/stat`).split(') ').at(-1).split(' ')[1];
}

/** Empty where there is no such process, or no /proc. */
function readProc(path) {
  try {
    return readFileSync(`/proc/${path}`, 'utf8');
  } catch {
    return '';
  }
}
