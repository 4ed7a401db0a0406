import { spawn, spawnSync } from 'node:child_process';

const find = (program) => (spawnSync(program, ['--version']).error ? undefined : program);

/** Debian's client programs; they work with the service's own database. */
export const psql = find('psql');
export const pgbench = find('pgbench');

/**
 * Repeats one prepared statement on this many connections, without explicit transactions.
 * @returns `p50`: milliseconds; `rate`: statements per second.
 */
export async function runPgbench({ url, script, clients, seconds, logPrefix }) {
  const args = ['-n', '-M', 'prepared', '-c', String(clients), '-j', '1', '-T', String(seconds)];
  const child = spawn(pgbench, [...args, '-f', '-', '-l', `--log-prefix=${logPrefix}`, url], {
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  let output = '';
  child.stdout.on('data', (text) => (output += text));
  child.stderr.on('data', (text) => (output += text));
  child.stdin.end(script);
  const code = await new Promise((resolve) => child.once('close', resolve));
  const rate = Number(/tps = ([\d.]+)/.exec(output)?.[1]);
  if (code !== 0 || !rate) throw new Error(`pgbench: ${output}`);
  return rate;
}
