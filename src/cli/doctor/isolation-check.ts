import { randomUUID } from 'node:crypto';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AppConfig } from '../../config/app-config.js';
import { recordProbe, type SandboxAccess } from '../../sandboxes/lifecycle/sandbox-operations.js';
import type { Sql } from '../../database/sql.js';
import { describeLimits, softLimits } from '../../sandboxes/driver/sandbox-driver.js';
import { withSandboxes } from '../sandbox-access.js';
import { diagnose, type Diagnosis, fail, type Finding, ok, skip, warn } from './finding.js';

const PREFLIGHT_LIMIT_MS = 20_000;
const PROBE_LIMIT_MS = 60_000;

/** Checks that the driver is ready, then creates a sandbox and attempts from inside what isolation must prevent. */
export async function checkSandboxes(config: AppConfig, sql: Sql | undefined): Promise<Finding[]> {
  if (config.role === 'api') {
    const why = skip(
      'this process creates no sandboxes (APP_ROLE=api); run doctor on a host with workers',
    );
    return [
      { check: 'driver', ...why },
      { check: 'limits', ...why },
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
      'follow the advice in the message; until then POST /sessions returns 502',
    );
    if (ready.verdict === 'fail') {
      return [
        ready,
        { check: 'limits', ...skip('needs the driver') },
        { check: 'isolation', ...skip('needs the driver') },
      ];
    }
    return [
      ready,
      await diagnose('limits', () => limits(access)),
      await diagnose('isolation', () => probe(config, sql, access)),
    ];
  });
}

/** Reports how this host enforces the limits of a sandbox. */
async function limits({ driver }: SandboxAccess): Promise<Diagnosis> {
  const report = await driver.limits({ signal: AbortSignal.timeout(PREFLIGHT_LIMIT_MS) });
  const soft = softLimits(report);
  if (soft.length === 0) return ok(`Limits of a sandbox: ${describeLimits(report)}`);
  return warn(
    `Limits of a sandbox: ${describeLimits(report)}; the kernel does not enforce ${soft.join(' and ')}`,
    'run the service as root, or delegate control groups to it (docs/operating.md, "Limits of sandboxes")',
  );
}

async function probe(
  config: AppConfig,
  sql: Sql | undefined,
  { driver, place }: SandboxAccess,
): Promise<Diagnosis> {
  const sandboxId = randomUUID();
  const forget = sql && (await recordProbe(sql, sandboxId, place));
  const signal = AbortSignal.timeout(PROBE_LIMIT_MS);
  const bait = await layBait();
  try {
    const degraded = config.sandbox.isolation === 'degraded';
    // Sandboxes elsewhere that have no gateway have an open network, over which they may reach what everybody reaches.
    const open = (await driver.gateway()).isMissing === true;
    // Without isolation, the network cannot be limited either.
    const mode = degraded || open ? 'unrestricted' : 'limited';
    const network = { mode, allowedHosts: [] } as const;
    await driver.create({ sandboxId, writableRoot: false, network, signal });
    const { exitCode, outputTail } = await driver.runScript({
      sandboxId,
      script: bait.script({ network: !open }),
      as: 'agent',
      signal,
    });
    const broken = [...bait.taken(outputTail), ...secretsIn(outputTail, config)];
    return judge({ broken, exitCode, degraded, open, outputTail });
  } finally {
    await bait.remove();
    await driver.destroy({ sandboxId, signal: AbortSignal.timeout(PROBE_LIMIT_MS) });
    await forget?.();
  }
}

function judge(found: {
  broken: readonly string[];
  exitCode: number;
  degraded: boolean;
  open: boolean;
  outputTail: string;
}): Diagnosis {
  const { broken, exitCode, degraded, open, outputTail } = found;
  if (exitCode !== 0) {
    return fail(
      `The probe exited with ${exitCode}: ${outputTail.trim().split('\n').at(-1) ?? ''}`,
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
        `The sandbox is not isolated: ${can}`,
        'stop the workers of this host and report it (docs/security.md)',
      )
    : ok(
        open
          ? 'A sandbox was created and could not access any file, process or secret of this host; its network is open, because there is no GATEWAY_URL'
          : 'A sandbox was created and could not access any file, process, secret or address of this host',
      );
}

/** Resources of this host that a sandbox must not be able to access. */
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
    script: (tests: { network: boolean }): string =>
      probeScript({ bait: join(folder, 'bait'), port, pid: process.pid, marker, ...tests }),
    taken: (output: string): string[] => [
      ...(output.includes(secret) ? ['read files of the host'] : []),
      ...(output.includes(marker) ? ['see processes of the host'] : []),
      ...(connections > 0 ? ['reach the host by network'] : []),
      ...(/^NoNewPrivs:\s*0$/m.test(output)
        ? ['gain privileges through set-user-id programs']
        : []),
      ...(/^CapEff:\s*0*[1-9a-f]/m.test(output) ? ['use capabilities'] : []),
    ],
    remove: async () => {
      server.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function probeScript(what: {
  bait: string;
  port: number;
  pid: number;
  marker: string;
  network: boolean;
}): string {
  const { bait, port, pid, marker, network } = what;
  const own = Object.values(networkInterfaces())
    .flatMap((each) => each ?? [])
    .filter(({ family }) => family === 'IPv4')
    .map(({ address }) => address);
  const addresses = network ? [...own, '127.0.0.1'] : [];
  return `
exec 2>/dev/null
env
grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status
cat ${bait}
tr '\\0' ' ' </proc/${pid}/cmdline | grep -q doctor && echo ${marker}
for address in ${[...new Set(addresses)].join(' ')}; do
  timeout 2 bash -c "exec 3<>/dev/tcp/$address/${port}"
done
exit 0`;
}

/** The service's secrets that appear in the sandbox's environment. */
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
