import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NAMESERVER } from '../../../src/sandboxes/shared/relay/listener-plan.js';
import { Relay } from '../../../src/sandboxes/shared/relay/relay.js';
import type { RefusalEvent } from '../../../src/sandboxes/shared/relay/refusal-log.js';
import type { RelayOptions } from '../../../src/sandboxes/shared/relay/relay.js';

const LISTENERS = join(process.cwd(), 'dist/src/sandboxes/shared/relay/listeners.js');

const NAMESPACE_ARGS =
  '--dev-bind / / --unshare-user --uid 0 --gid 0 --unshare-net --cap-add ALL --die-with-parent'.split(
    ' ',
  );

interface RunResult {
  exitCode: number | null;
  stdout: string;
  stderr: string;
}

export interface RelayedNamespace {
  relay: Relay;
  /** Everything the relay refused so far. */
  refusals: RefusalEvent[];
  /** Runs a bash script to its end; `$NODE` is a Node. */
  run: (script: string) => Promise<RunResult>;
  close: () => Promise<void>;
}

/**
 * Starts a real network namespace with only `lo`, served by a relay in this process, and a shell in it that stays for
 * as many scripts as the test wants.
 */
export async function startRelayedNamespace(
  options: Omit<RelayOptions, 'log'>,
): Promise<RelayedNamespace> {
  const refusals: RefusalEvent[] = [];
  const relay = new Relay({ ...options, log: (event) => refusals.push(event) });
  const folder = await mkdtemp(join(tmpdir(), 'relay-'));
  const resolvConf = join(folder, 'resolv.conf');
  await writeFile(resolvConf, `nameserver ${NAMESERVER}\n`);

  // Each script comes as one JSON line and runs in a bash of its own; the loop is Node to keep the framing honest.
  const loop = `
    const { spawn } = require('node:child_process');
    require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
      const { id, script } = JSON.parse(line);
      const child = spawn('bash', ['-c', script], { env: { ...process.env, NODE: process.execPath } });
      let stdout = '', stderr = '';
      child.stdout.setEncoding('utf8').on('data', (text) => (stdout += text));
      child.stderr.setEncoding('utf8').on('data', (text) => (stderr += text));
      child.on('close', (exitCode) => console.log(JSON.stringify({ id, exitCode, stdout, stderr })));
    });`;
  const child = spawn(
    'bwrap',
    [
      NAMESPACE_ARGS,
      ['--ro-bind', resolvConf, '/etc/resolv.conf', '--', 'sh', '-c'],
      ['"$0" "$1" "$2" && exec 3>&- && unset NODE_CHANNEL_FD && exec "$0" -e "$3"'],
      [process.execPath, LISTENERS, relay.listenerArgs(), loop],
    ].flat(),
    {
      stdio: ['pipe', 'pipe', 'inherit', 'ipc'],
      env: { PATH: process.env['PATH'], HOME: folder },
    },
  );
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  await relay.adopt(child);

  const waiting = new Map<number, (result: RunResult) => void>();
  let buffered = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    buffered += text;
    const lines = buffered.split('\n');
    buffered = lines.pop() ?? '';
    for (const line of lines) {
      const { id, ...result } = JSON.parse(line) as RunResult & { id: number };
      waiting.get(id)?.(result);
      waiting.delete(id);
    }
  });

  let next = 0;
  return {
    relay,
    refusals,
    run: (script) =>
      new Promise((resolve) => {
        const id = next++;
        waiting.set(id, resolve);
        child.stdin?.write(`${JSON.stringify({ id, script })}\n`);
      }),
    close: async () => {
      child.kill('SIGKILL');
      await exited;
      await relay.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
