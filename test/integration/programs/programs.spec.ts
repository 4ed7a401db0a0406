import { randomUUID } from 'node:crypto';
import { existsSync, readdirSync } from 'node:fs';
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { LocalSandboxDriver } from '../../../src/sandboxes/driver/local/local-sandbox-driver.js';
import { makeLocalDriver } from '../../../src/sandboxes/driver/local/make-local-driver.js';
import type { NpmProgram } from '../../../src/sandboxes/driver/sandbox-driver.js';
import { describeWith } from '../../support/requirements.js';
import { NpmRegistry } from './npm-registry.js';

const OPEN = { mode: 'unrestricted', allowedHosts: [] } as const;
const GREETER: NpmProgram = {
  bin: 'greeter',
  package: 'greeter',
  version: '1.2.3',
  entries: ['not-for-{arch}/greeter', 'greeter/program.sh'],
};
const signal = AbortSignal.timeout(100_000);

describeWith(['bubblewrap'], 'programs for sandboxes', () => {
  let registry: NpmRegistry;
  let folder: string;
  let driver: LocalSandboxDriver;
  const sandboxes: string[] = [];

  beforeAll(async () => {
    registry = await new NpmRegistry('greeter', '#!/bin/sh\necho "hello from $0"\n').start();
    folder = await realpath(await mkdtemp(join(tmpdir(), 'programs-')));
    driver = await makeLocalDriver({
      stateDir: join(folder, 'sandboxes'),
      cacheDir: join(folder, 'cache'),
      isolation: 'strict',
      gatewayDir: join(folder, 'gateway'),
      gatewayConfig: { grantKeys: [], trusted: [] },
      gateways: [],
      npmEnv: { PATH: '/usr/bin:/bin', HOME: folder, npm_config_registry: registry.url },
      limits: { memoryBytes: 2 ** 30, diskBytes: 2 ** 30, processes: 100 },
    });
  });

  afterAll(async () => {
    for (const sandboxId of sandboxes) await driver.destroy({ sandboxId, signal });
    await driver.close();
    await rm(folder, { recursive: true, force: true });
    await registry.stop();
  });

  async function sandbox(): Promise<string> {
    const sandboxId = randomUUID();
    sandboxes.push(sandboxId);
    const network = { mode: 'limited', allowedHosts: [] } as const;
    await driver.create({ sandboxId, signal, network, writableRoot: false });
    return sandboxId;
  }

  const run = (sandboxId: string, script: string) =>
    driver.runScript({ sandboxId, script, as: 'agent', signal });

  test('one installation serves all, and no sandbox can change it', async () => {
    const both = await Promise.all([sandbox(), sandbox()]);
    await Promise.all(
      both.map((sandboxId) =>
        driver.providePrograms({ sandboxId, network: OPEN, programs: [GREETER], signal }),
      ),
    );
    expect(registry.downloads).toBe(1);
    for (const sandboxId of both) {
      expect(await run(sandboxId, 'greeter')).toEqual({
        exitCode: 0,
        outputTail: 'hello from /programs/bin/greeter\n',
      });
      const attack = await run(
        sandboxId,
        `file=$(realpath "$(command -v greeter)")
         ! echo evil >"$file" && ! rm -f "$file" && ! touch /programs/bin/more && ! chmod u+w "$file"`,
      );
      expect(attack.exitCode).toBe(0);
    }
    const installed = readdirSync(join(folder, 'cache/programs')).filter((name) =>
      name.startsWith('greeter-1.2.3-'),
    );
    expect(installed).toHaveLength(1);
    const [name = ''] = installed;
    const modules = join(folder, 'cache/programs', name, 'work/node_modules');
    expect(existsSync(join(modules, 'greeter/program.sh'))).toBe(true);
    expect(existsSync(join(modules, 'greeter/ran-a-script'))).toBe(false);
    expect(readdirSync(join(modules, '..'))).toEqual(['node_modules']);
  });

  test('a program that the sandbox has itself is left in place', async () => {
    const sandboxId = await sandbox();
    const { home } = driver.layout(sandboxId);
    const path = `${home}/.local/bin/greeter`;
    await driver.writeFiles({
      sandboxId,
      signal,
      files: [{ path, content: '#!/bin/sh\necho my own\n', mode: 0o755 }],
    });
    const missing = { ...GREETER, package: 'not-in-the-registry' };
    await driver.providePrograms({ sandboxId, network: OPEN, programs: [missing], signal });
    expect((await run(sandboxId, 'greeter; ls /programs')).outputTail).toMatch(
      /^my own\n.*No such/s,
    );
  });

  test('an installation that fails says why, leaves nothing, and can be tried again', async () => {
    const sandboxId = await sandbox();
    const provide = (program: Partial<NpmProgram>) =>
      driver.providePrograms({
        sandboxId,
        network: OPEN,
        programs: [{ ...GREETER, ...program }],
        signal,
      });
    await expect(provide({ version: '9.9.9' })).rejects.toThrow(
      /^greeter@9\.9\.9 could not be installed: .*No matching version/,
    );
    await expect(provide({ package: 'not-there' })).rejects.toThrow(
      /^not-there@1\.2\.3 could not be installed: .*404/,
    );
    await expect(provide({ entries: ['greeter/elsewhere'] })).rejects.toThrow(
      /^greeter@1\.2\.3 has no program for this machine/,
    );
    const left = readdirSync(join(folder, 'cache/programs'));
    expect(left.filter((name) => name !== '.lock' && !name.startsWith('greeter-1.2.3-'))).toEqual(
      [],
    );
    await provide({});
    expect((await run(sandboxId, 'greeter')).exitCode).toBe(0);
  });
});
