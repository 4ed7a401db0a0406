import { spawn, spawnSync } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync } from 'node:fs';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const START_LIMIT_MS = 60_000;
const STOP_LIMIT_MS = 30_000;

/** Whether the engine at `DOCKER_HOST`, a unix socket, answers. */
export function engineAnswers() {
  const host = process.env.DOCKER_HOST ?? 'unix:///var/run/docker.sock';
  const socketPath = host.replace(/^unix:\/\//, '');
  return new Promise((resolve) => {
    get({ socketPath, path: '/_ping', timeout: 5000 }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    })
      .on('timeout', () => resolve(false))
      .on('error', () => resolve(false));
  });
}

/**
 * Starts an engine for the tests and sets `DOCKER_HOST`, if none answers and this machine can. It has folders of its own
 * and touches neither the network nor the firewall of the host. Where it cannot start, the tests that need one are
 * skipped.
 *
 * @param {(line: string) => void} say
 * @returns {Promise<() => Promise<void>>} stops it
 */
export async function startEngine(say) {
  const nothing = async () => undefined;
  if (await engineAnswers()) return nothing;
  if (process.geteuid() !== 0 || spawnSync('dockerd', ['--version']).status !== 0) return nothing;
  const folder = mkdtempSync(join(tmpdir(), 'engine-'));
  const socket = `unix://${folder}/socket`;
  // The engine makes the others, but not this one.
  mkdirSync(join(folder, 'data'));
  const log = openSync(join(folder, 'log'), 'w');
  const engine = spawn(
    'dockerd',
    [
      ...['--data-root', join(folder, 'data'), '--exec-root', join(folder, 'exec')],
      ...['--pidfile', join(folder, 'pid'), '--host', socket],
      ...['--bridge=none', '--iptables=false', '--ip6tables=false'],
    ],
    { stdio: ['ignore', log, log] },
  );
  closeSync(log);
  const exited = new Promise((resolve) => {
    engine.once('error', resolve).once('exit', resolve);
  });
  const runs = () => engine.exitCode === null && engine.signalCode === null;
  const before = process.env.DOCKER_HOST;
  const stop = async () => {
    if (before === undefined) delete process.env.DOCKER_HOST;
    else process.env.DOCKER_HOST = before;
    if (!runs()) return;
    engine.kill('SIGTERM');
    await Promise.race([exited, delay(STOP_LIMIT_MS, undefined, { ref: false })]);
  };
  process.env.DOCKER_HOST = socket;
  for (const giveUpAt = Date.now() + START_LIMIT_MS; runs() && Date.now() < giveUpAt;) {
    if (existsSync(join(folder, 'socket')) && (await engineAnswers())) return stop;
    await delay(100);
  }
  const said = readFileSync(join(folder, 'log'), 'utf8').trimEnd().split('\n').slice(-3);
  say(`The Docker engine did not start, so that the tests that need one are skipped:`);
  for (const line of said) say(`  ${line}`);
  await stop();
  return nothing;
}
