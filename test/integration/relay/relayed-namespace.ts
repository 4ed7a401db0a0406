import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packageRoot } from '../../../src/common/package-root.js';
import { listenProgram } from '../../../src/supervisor/confine.js';
import { NAMESERVER } from '../../../src/supervisor/relay/listener-plan.js';
import { createGateway } from '../../../src/gateway/server.js';
import type { RelaySetup } from '../../../src/sandboxes/driver/docker/inside/relay-setup.js';
import { type Dial, hostEgress } from '../../../src/gateway/egress/dialing.js';
import { listenCommand } from '../../../src/supervisor/relay/adoption.js';
import { Relay, type RelayOptions } from '../../../src/supervisor/relay/relay.js';
import type { Resolve } from '../../../src/gateway/egress/resolving.js';
import type { RefusalEvent } from '../../../src/supervisor/refusals.js';

const RELAY = join(process.cwd(), 'dist/src/sandboxes/driver/docker/inside/relay.js');

const NAMESPACE_ARGS =
  '--dev-bind / / --unshare-user --uid 0 --gid 0 --unshare-net --cap-add ALL --die-with-parent'.split(
    ' ',
  );

interface RunResult {
  exitCode: number | null;
  stdout: string;
  stderr: string;
}

/**
 * How the namespace is served: by a relay in this process that adopts its sockets, as supervisors on a host do it, or by
 * one that is a process in the namespace and gets out through an egress in this one, as in containers.
 */
export type Serving = 'adopted' | 'through an egress';

export interface RelayedNamespace {
  /** Everything the relay refused so far. */
  refusals: RefusalEvent[];
  /** Runs a bash script to its end; `$NODE` is a Node. */
  run: (script: string) => Promise<RunResult>;
  /** Ends the relay; the namespace stays. */
  closeRelay: () => Promise<void>;
  close: () => Promise<void>;
}

export interface NamespaceOptions extends Pick<RelayOptions, 'policy' | 'gateways' | 'limits'> {
  /** Default: the host's resolver. */
  resolve?: Resolve | undefined;
  /** Default: a TCP connection from the host. */
  dial?: Dial | undefined;
}

/**
 * Starts a real network namespace with only `lo`, served by a relay, and a shell in it that stays for as many scripts as
 * the test wants.
 */
export async function startRelayedNamespace(
  serving: Serving,
  { policy, gateways, limits, resolve: lookUp, dial }: NamespaceOptions,
): Promise<RelayedNamespace> {
  const refusals: RefusalEvent[] = [];
  const egress = hostEgress(lookUp, dial);
  const relay = new Relay({
    policy,
    gateways,
    egress,
    limits,
    log: (event) => void refusals.push(event),
  });
  const folder = await mkdtemp(join(tmpdir(), 'relay-'));
  const resolvConf = join(folder, 'resolv.conf');
  await writeFile(resolvConf, `nameserver ${NAMESERVER}\n`);
  const adopted = serving === 'adopted';
  const egressServer = createGateway({ egress });
  const setup: RelaySetup = {
    policy,
    gateways,
    gateway: join(folder, 'egress'),
    sandboxId: 'test',
    policyFile: join(folder, 'policy'),
    control: join(folder, 'control'),
    limits,
  };
  if (!adopted) {
    await new Promise<void>((listening) => egressServer.listen(setup.gateway, () => listening()));
  }

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
      adopted
        ? ['"$1" "$2" && exec 3>&- && unset NODE_CHANNEL_FD && exec "$0" -e "$3"']
        : [
            'exec 3>&-; unset NODE_CHANNEL_FD; "$0" "$1" "$2" </dev/null & echo $!; exec "$0" -e "$3"',
          ],
      process.execPath,
      adopted
        ? listenCommand(listenProgram(packageRoot()), relay.listeners)
        : [RELAY, JSON.stringify(setup)],
      loop,
    ].flat(),
    {
      stdio: ['pipe', 'pipe', 'inherit', 'ipc'],
      env: { PATH: process.env['PATH'], HOME: folder },
    },
  );
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));

  let relayPid = 0;
  let ready = (): void => undefined;
  const served = new Promise<void>((done) => (ready = done));
  const waiting = new Map<number, (result: RunResult) => void>();
  let buffered = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    buffered += text;
    const lines = buffered.split('\n');
    buffered = lines.pop() ?? '';
    for (const line of lines) {
      if (line === 'ready') ready();
      else if (/^\d+$/.test(line)) relayPid = Number(line);
      if (!line.startsWith('{')) continue;
      const message = JSON.parse(line) as (RunResult & { id: number }) | RefusalEvent;
      if ('kind' in message) {
        refusals.push(message);
        continue;
      }
      const { id, ...result } = message;
      waiting.get(id)?.(result);
      waiting.delete(id);
    }
  });

  if (adopted) await relay.adopt(child);
  else await served;
  // It shares its processes with the host, so it does not end with the namespace.
  const closeRelay = async (): Promise<void> => {
    if (relayPid > 0) process.kill(relayPid, 'SIGKILL');
    relayPid = 0;
    await relay.close();
  };

  let next = 0;
  return {
    refusals,
    run: (script) =>
      new Promise((resolve) => {
        const id = next++;
        waiting.set(id, resolve);
        child.stdin?.write(`${JSON.stringify({ id, script })}\n`);
      }),
    closeRelay,
    close: async () => {
      child.kill('SIGKILL');
      await exited;
      await closeRelay();
      if (egressServer.listening)
        await new Promise<void>((closed) => egressServer.close(() => closed()));
      await rm(folder, { recursive: true, force: true });
    },
  };
}
