import { randomUUID } from 'node:crypto';
import { execFileSync, spawnSync } from 'node:child_process';
import { chmod, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { StrictIsolation } from '../../../src/sandboxes/driver/local/strict-isolation.js';
import { inspectHost } from '../../../src/sandboxes/driver/local/host.js';
import { packageRoot } from '../../../src/common/package-root.js';
import type { LocalSandboxOptions } from '../../../src/sandboxes/driver/local/options.js';
import { checkDegraded, checkStrict } from '../../../src/sandboxes/driver/local/preflight.js';
import { Launcher } from '../../../src/sandboxes/driver/local/launcher/launcher.js';
import { closeDrivers, isRoot, newDriver, newOptions } from './local-installations.js';

const signal = new AbortController().signal;

describe('the preflight of local sandboxes', () => {
  let options: LocalSandboxOptions;

  beforeEach(async () => {
    options = await newOptions('strict');
  });
  afterEach(async () => {
    await closeDrivers();
    await rm(options.stateDir, { recursive: true });
  });

  it('names the package that is missing and the command that installs it', async () => {
    const host = { ...inspectHost(), bwrap: null };
    const isolation = new StrictIsolation(host, { ...options, nodePath: process.execPath }, '');
    const probeFolder = join(options.stateDir, '.probe');
    const launcher = new Launcher(process.execPath);
    const check = checkStrict({ host, launcher, isolation, probeFolder, user: null, signal });
    await expect(check).rejects.toMatchObject({ name: 'SandboxError', kind: 'unavailable' });
    await expect(check).rejects.toThrow(
      /bubblewrap not installed: run `[^`]*install[^`]* bubblewrap`/,
    );
    await expect(check).rejects.toThrow('SANDBOX_ISOLATION=degraded');
  });

  it('names the compiler that the program which confines agents was not built with', () => {
    const host = { ...inspectHost(), confine: false };
    expect(() => checkDegraded(host, options)).toThrow(
      /not built: run `[^`]*install[^`]* gcc libc6-dev`, then build and start the service again/,
    );
  });

  it('says that namespaces cannot be had, and never goes on without them', () => {
    // A user namespace in which no further one may be made, as in many containers.
    const script = `
      const { LocalSandboxDriver } = await import(process.argv[1]);
      const signal = new AbortController().signal;
      const driver = new LocalSandboxDriver(JSON.parse(process.argv[2]));
      const sandboxId = ${JSON.stringify(randomUUID())};
      const tried = async (call) => { try { await call(); console.log('done'); } catch (e) { console.log(e.kind + ': ' + e.message); } };
      await tried(() => driver.preflight({ signal }));
      await tried(() => driver.create({ sandboxId, signal, writableRoot: false, network: { mode: 'unrestricted', allowedHosts: [] } }));
      await tried(() => driver.runScript({ sandboxId, signal, as: 'agent', script: 'touch /tmp/' + sandboxId }));
      console.log((await import('node:fs')).existsSync('/tmp/' + sandboxId));
      await driver.close();`;
    const module = join(packageRoot(), 'dist/src/sandboxes/driver/local/local-sandbox-driver.js');
    const { stdout, stderr } = spawnSync(
      'unshare',
      [
        ['-Ur', 'sh', '-c'],
        [
          'echo 1 > /proc/sys/user/max_user_namespaces; exec unshare -U --map-user=1000 --map-group=1000 "$@"',
          'sh',
        ],
        [
          process.execPath,
          '--input-type=module',
          '-e',
          script,
          '--',
          module,
          JSON.stringify(options),
        ],
      ].flat(),
      { encoding: 'utf8' },
    );
    const lines = stdout.trim().split('\n');
    expect({ lines, stderr }).toMatchObject({ lines: { length: 4 } });
    expect(lines[0]).toMatch(/^unavailable: .*SANDBOX_ISOLATION=degraded/);
    expect(lines.slice(1).join('\n')).not.toContain('done\ndone');
    expect(lines[3]).toBe('false');
  });

  it('refuses limited networking where nothing would enforce it', async () => {
    const driver = newDriver({ ...options, isolation: 'degraded' });
    const network = { mode: 'limited', allowedHosts: [] } as const;
    const sandboxId = randomUUID();
    await expect(
      driver.create({ sandboxId, writableRoot: false, network, signal }),
    ).rejects.toMatchObject({ kind: 'unsupported' });
    expect(await driver.list({ signal })).toEqual([]);
  });

  it('refuses a network policy that cannot be applied', async () => {
    const driver = newDriver(options);
    const network = { mode: 'limited', allowedHosts: ['not a host'] } as const;
    await expect(
      driver.create({ sandboxId: randomUUID(), writableRoot: false, network, signal }),
    ).rejects.toMatchObject({ kind: 'failed' });
  });

  it('works below a folder that no other user may enter', async () => {
    const closed = join(options.stateDir, 'closed');
    await mkdir(closed, { mode: 0o700 });
    await chmod(closed, 0o700);
    const driver = newDriver({ ...options, stateDir: join(closed, 'sandboxes') });
    await driver.preflight({ signal });
    const sandboxId = randomUUID();
    const network = { mode: 'unrestricted', allowedHosts: [] } as const;
    await driver.create({ sandboxId, writableRoot: false, network, signal });
    const result = await driver.runScript({ sandboxId, script: 'echo in', as: 'agent', signal });
    expect(result).toEqual({ exitCode: 0, outputTail: 'in\n' });
    await driver.destroy({ sandboxId, signal });
  });

  it('tells root which folder keeps the users of degraded sandboxes out', async () => {
    if (!isRoot) return;
    const closed = join(options.stateDir, 'closed');
    await mkdir(closed);
    await chmod(closed, 0o700);
    const stateDir = join(closed, 'sandboxes');
    expect(() => checkDegraded(inspectHost(), { ...options, stateDir })).toThrow(closed);
    execFileSync('chmod', ['711', closed, options.stateDir]);
    expect(() => checkDegraded(inspectHost(), { ...options, stateDir })).not.toThrow();
  });
});
