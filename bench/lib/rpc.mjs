import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { NODE } from '../../scripts/lib/project.mjs';

const STOP_LIMIT_MS = 20_000;

/**
 * Starts a helper in a separate process, so that its cost does not affect the measurement.
 * @returns `call(method, argument)` calls a method; `on(event, listener)` subscribes to its events.
 */
export async function startHelper(path, { env = {}, nodeFlags = [] } = {}) {
  const child = spawn(NODE, [...nodeFlags, path], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    env: { ...process.env, ...env },
  });
  const open = new Map();
  const listeners = new Map();
  let calls = 0;
  child.on('message', ({ id, event, value, error }) => {
    if (event !== undefined) return void listeners.get(event)?.(value);
    const { resolve, reject } = open.get(id);
    open.delete(id);
    if (error === undefined) resolve(value);
    else reject(new Error(error));
  });
  const ended = once(child, 'exit').then(([code]) => {
    for (const { reject } of open.values()) reject(new Error(`${path} ended with ${code}`));
  });
  const call = (method, argument) =>
    new Promise((resolve, reject) => {
      const id = (calls += 1);
      open.set(id, { resolve, reject });
      child.send({ id, method, argument }, (error) => error && reject(error));
    });
  const stop = async () => {
    if (child.exitCode === null) child.disconnect();
    const killer = setTimeout(() => child.kill('SIGKILL'), STOP_LIMIT_MS);
    await ended;
    clearTimeout(killer);
  };
  return { pid: child.pid, call, stop, on: (event, listener) => listeners.set(event, listener) };
}

/** The helper's side: answers calls with these methods until the other side disconnects. */
export function serve(methods, onGone = () => process.exit(0)) {
  process.on('message', ({ id, method, argument }) => {
    Promise.resolve()
      .then(() => methods[method](argument))
      .then(
        (value) => process.send({ id, value }),
        (error) => process.send({ id, error: error.stack ?? String(error) }),
      );
  });
  process.on('disconnect', onGone);
}

/** Sends an event. */
export const tell = (event, value) => process.connected && process.send({ event, value });
