import { randomUUID } from 'node:crypto';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AppConfig } from '../../config/app-config.js';
import { SandboxesRepository } from '../../runner/sandboxes.repository.js';
import type { Sql } from '../../database/sql.js';
import { type SandboxAccess, withSandboxes } from '../sandbox-access.js';
import { diagnose, type Diagnosis, fail, type Finding, ok, skip, warn } from './finding.js';

const PREFLIGHT_LIMIT_MS = 20_000;
const PROBE_LIMIT_MS = 60_000;
/** For how long the service's reapers leave the probe alone. */
const RECORD_SECONDS = 120;

/** Asks the driver whether it is ready, then makes a sandbox and tries from inside what must not be possible. */
export async function checkSandboxes(config: AppConfig, sql: Sql | undefined): Promise<Finding[]> {
  if (config.role === 'api') {
    const why = skip(
      'this process makes no sandboxes (APP_ROLE=api); run doctor on a host of workers',
    );
    return [
      { check: 'driver', ...why },
      { check: 'isolation', ...why },
    ];
  }
  return withSandboxes(config, sql, async (access) => {
    const ready = await diagnose(
      'driver',
      async () => {
        await access.driver.preflight({ signal: AbortSignal.timeout(PREFLIGHT_LIMIT_MS) });
        return ok(`The driver ${access.driver.name} is ready`);
      },
      'do what the message says; until then POST /sessions is a 502',
    );
    if (ready.verdict === 'fail') {
      return [ready, { check: 'isolation', ...skip('needs the driver') }];
    }
    return [ready, await diagnose('isolation', () => probe(config, sql, access))];
  });
}

async function probe(
  config: AppConfig,
  sql: Sql | undefined,
  { driver, place }: SandboxAccess,
): Promise<Diagnosis> {
  const sandboxId = randomUUID();
  const records = sql && new SandboxesRepository(sql);
  await records?.recordProbe(sandboxId, place, RECORD_SECONDS);
  const signal = AbortSignal.timeout(PROBE_LIMIT_MS);
  const bait = await layBait();
  try {
    const network = { mode: 'limited', allowedHosts: [] } as const;
    // Without isolation there is no limited network; that much is known.
    const degraded = config.sandbox.isolation === 'degraded';
    await driver.create({
      sandboxId,
      writableRoot: false,
      network: degraded ? { mode: 'unrestricted', allowedHosts: [] } : network,
      signal,
    });
    const { exitCode, outputTail } = await driver.runScript({
      sandboxId,
      script: bait.script,
      as: 'agent',
      signal,
    });
    const broken = [...bait.taken(outputTail), ...secretsIn(outputTail, config)];
    return judge({ broken, exitCode, degraded, outputTail });
  } finally {
    await bait.remove();
    await driver.destroy({ sandboxId, signal: AbortSignal.timeout(PROBE_LIMIT_MS) });
    await records?.forget(sandboxId);
  }
}

function judge(found: {
  broken: readonly string[];
  exitCode: number;
  degraded: boolean;
  outputTail: string;
}): Diagnosis {
  const { broken, exitCode, degraded, outputTail } = found;
  if (exitCode !== 0) {
    return fail(
      `The probe ended with ${exitCode}: ${outputTail.trim().split('\n').at(-1) ?? ''}`,
      'sandboxes cannot run bash; see the log of the service',
    );
  }
  const can = `an agent can ${broken.join(', ')}`;
  if (degraded) {
    return warn(
      `SANDBOX_ISOLATION=degraded: ${broken.length > 0 ? can : 'agents are plain processes'}`,
      'run trusted prompts only, or set SANDBOX_ISOLATION=strict',
    );
  }
  return broken.length > 0
    ? fail(
        `The sandbox does not hold: ${can}`,
        'stop the workers of this host and report it (docs/security.md)',
      )
    : ok('A sandbox was made: it reaches no file, process, secret or address of this host');
}

/** Things on this host that a sandbox must not get at. */
async function layBait() {
  const folder = await mkdtemp(join(tmpdir(), 'doctor-'));
  const secret = randomUUID();
  await chmod(folder, 0o755);
  await writeFile(join(folder, 'bait'), secret, { mode: 0o644 });
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.destroy();
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, resolve);
  });
  const { port } = server.address() as AddressInfo;
  const marker = `doctor-${process.pid}`;
  return {
    script: probeScript({ bait: join(folder, 'bait'), port, pid: process.pid, marker }),
    taken: (output: string): string[] => [
      ...(output.includes(secret) ? ['read files of the host'] : []),
      ...(output.includes(marker) ? ['see processes of the host'] : []),
      ...(connections > 0 ? ['reach the host by network'] : []),
      ...(/^NoNewPrivs:\s*0$/m.test(output) ? ['gain privileges by set-user-id programs'] : []),
      ...(/^CapEff:\s*0*[1-9a-f]/m.test(output) ? ['use capabilities'] : []),
    ],
    remove: async () => {
      server.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function probeScript(what: { bait: string; port: number; pid: number; marker: string }): string {
  const { bait, port, pid, marker } = what;
  const addresses = Object.values(networkInterfaces())
    .flatMap((each) => each ?? [])
    .filter(({ family }) => family === 'IPv4')
    .map(({ address }) => address);
  return `
exec 2>/dev/null
env
grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status
cat ${bait}
tr '\\0' ' ' </proc/${pid}/cmdline | grep -q doctor && echo ${marker}
for address in ${[...new Set([...addresses, '127.0.0.1'])].join(' ')}; do
  timeout 2 bash -c "exec 3<>/dev/tcp/$address/${port}"
done
exit 0`;
}

/** Secrets of the service that stand in the sandbox's environment. */
function secretsIn(output: string, config: AppConfig): string[] {
  const secrets = [
    config.databaseUrl,
    config.encryptionKeys,
    ...Object.values(config.providers).map(({ apiKey }) => apiKey),
  ];
  return secrets.some((secret) => secret !== undefined && output.includes(secret))
    ? ['read secrets of the service']
    : [];
}
