import { randomUUID } from 'node:crypto';
import { readdirSync, statSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { LocalSandboxDriver } from '../../../src/sandboxes/driver/local/local-sandbox-driver.js';
import type { LocalSandboxOptions } from '../../../src/sandboxes/driver/local/options.js';
import type { SharedSetup } from '../../../src/sandboxes/driver/sandbox-driver.js';
import { bash, outcomeOf } from '../../contracts/sandbox-driver.contract.js';
import { ROOTFS_TIMEOUT_MS, sharedRootfs, SHARED_ROOTFS_DIR } from '../rootfs/shared-rootfs.js';
import { closeDrivers, newDriver, newOptions } from './local-installations.js';

const signal = new AbortController().signal;
const network = { mode: 'unrestricted', allowedHosts: [] } as const;

/** Leaves something everywhere, and can be counted: each run has another number. */
const SCRIPT = `
  echo $RANDOM$RANDOM > /opt/made && echo tool > ~/.made && echo work > /workspace/made && echo tmp > /tmp/made
  mkdir -p ~/.config && echo setup > ~/.config/setup && rm /usr/bin/less && useradd worker
  chmod u+s /opt/made && ln -s /etc/shadow /opt/link && mkfifo /workspace/fifo`;

describe('the layer of an environment', () => {
  let options: LocalSandboxOptions;
  let driver: LocalSandboxDriver;
  beforeAll(async () => {
    await sharedRootfs();
    options = { ...(await newOptions('strict')), rootfsDir: SHARED_ROOTFS_DIR };
    driver = newDriver(options);
  }, ROOTFS_TIMEOUT_MS);
  const made: string[] = [];
  afterAll(async () => {
    for (const sandboxId of made) await driver.destroy({ sandboxId, signal });
    await closeDrivers();
    await rm(options.stateDir, { recursive: true });
  });

  const setupOf = (members: Partial<SharedSetup> = {}): SharedSetup => ({
    ...{ scope: 'e', script: SCRIPT, env: { HOME: '/home/agent' }, network },
    ...members,
  });

  /** A sandbox with the setup, as a session makes it. */
  async function sandbox(setup: SharedSetup, by = driver) {
    const sandboxId = randomUUID();
    made.push(sandboxId);
    const builds: boolean[] = [];
    await by.create({ sandboxId, writableRoot: true, network, signal, setup });
    await by.writeFiles({
      ...{ sandboxId, signal },
      files: [{ path: '/home/agent/.config/session', content: `${sandboxId}\n` }],
    });
    const { script, env, scope } = setup;
    const result = await by.runScript({
      ...{ sandboxId, script, env, as: 'setup', signal, reusable: true },
      shared: { scope, network: setup.network },
      onBuild: (building) => builds.push(building),
    });
    return { sandboxId, builds, result };
  }

  async function agent(sandboxId: string, script: string): Promise<string> {
    const launch = { sandboxId, ...bash(`exec 2>&1; ${script}`) };
    await driver.launch(launch);
    return (await outcomeOf(driver.follow({ ...launch, offset: 0 }))).stdout;
  }
  const SHOW = `cat /opt/made ~/.made /workspace/made /tmp/made ~/.config/setup ~/.config/session
    ls /usr/bin/less; getent passwd worker agent | wc -l`;

  it('is built once, and has everything that the setup has changed', async () => {
    const first = await sandbox(setupOf());
    expect(first).toMatchObject({ builds: [true, false], result: { exitCode: 0 } });
    const second = await sandbox(setupOf());
    expect(second).toMatchObject({ builds: [], result: { exitCode: 0 } });
    const [seen, again] = [await agent(first.sandboxId, SHOW), await agent(second.sandboxId, SHOW)];
    expect(seen).toMatch(
      /^\d+\ntool\nwork\ntmp\nsetup\n[\w-]{36}\nls: cannot access .*less.*\n2\n$/,
    );
    expect(again).toBe(seen.replace(first.sandboxId, second.sandboxId));
  });

  it('is changed by no sandbox, and each keeps its own changes', async () => {
    const [one, two] = [await sandbox(setupOf()), await sandbox(setupOf())];
    await agent(
      one.sandboxId,
      'echo mine | tee ~/.made /workspace/made /tmp/made; rm -rf ~/.config',
    );
    await driver.runScript({
      ...{ sandboxId: one.sandboxId, as: 'setup', signal },
      script: 'echo mine > /opt/made; rm /etc/passwd',
    });
    expect(
      await agent(one.sandboxId, 'cat /opt/made ~/.made /workspace/made; ls -d ~/.config'),
    ).toMatch(/^mine\nmine\nmine\nls: cannot access/);
    expect(await agent(two.sandboxId, SHOW)).toMatch(/^\d+\ntool\nwork\ntmp\nsetup\n/);
    const third = await sandbox(setupOf());
    expect(await agent(third.sandboxId, SHOW)).toMatch(/^\d+\ntool\nwork\ntmp\nsetup\n/);
  });

  it('is shared by nobody else, and by nothing with other inputs', async () => {
    const first = await sandbox(setupOf());
    for (const members of [
      { scope: 'another' },
      { env: { HOME: '/home/agent', A: 'b' } },
      { script: `${SCRIPT}\n:` },
      { network: { mode: 'limited', allowedHosts: [] } as const },
    ]) {
      const other = await sandbox(setupOf(members));
      expect(other).toMatchObject({ builds: [true, false], result: { exitCode: 0 } });
      const number = 'cat /opt/made';
      expect(await agent(other.sandboxId, number)).not.toBe(await agent(first.sandboxId, number));
    }
  });

  it('gives root nothing: no rights, no owner, and nobody else can enter it', async () => {
    await sandbox(setupOf());
    const layers = join(options.stateDir, '.layers');
    const { mode } = statSync(layers);
    expect(mode & 0o777).toBe(0o700);
    const files = readdirSync(layers, { recursive: true, withFileTypes: true }).filter(
      ({ name, parentPath }) => name === 'made' && parentPath.endsWith('/opt'),
    );
    expect(files.length).toBeGreaterThan(0);
    for (const { parentPath, name } of files) {
      const stats = statSync(join(parentPath, name));
      expect({ uid: stats.uid, setuid: stats.mode & 0o4000 }).toEqual({ uid: 0, setuid: 0 });
    }
  });

  it('is built once for sandboxes that ask at the same time, in two processes', async () => {
    const other = newDriver(options);
    const setup = setupOf({ scope: 'together' });
    const all = await Promise.all([sandbox(setup), sandbox(setup), sandbox(setup, other)]);
    const numbers = new Set<string>();
    for (const { sandboxId } of all) numbers.add(await agent(sandboxId, 'cat /opt/made'));
    expect(numbers.size).toBe(1);
  });

  it('reports why it could not be built, and is tried again', async () => {
    const setup = setupOf({ script: '[ "$TRY" ] || { echo "no way" >&2; exit 7; }' });
    expect((await sandbox(setup)).result).toEqual({ exitCode: 7, outputTail: 'no way\n' });
    expect((await sandbox(setup)).builds).toEqual([true, false]);
    const left = readdirSync(options.stateDir).filter((name) => /^[\w-]{36}$/.test(name));
    expect(left.filter((id) => !made.includes(id))).toEqual([]);
    expect(readdirSync(join(options.stateDir, '.builds'))).toEqual([]);
  });

  it('ends when it takes too long', async () => {
    const slow = newDriver({ ...options, buildLimitMs: 2_000 });
    const { result } = await sandbox(setupOf({ script: "trap '' TERM; sleep 600" }), slow);
    expect(result).toEqual({
      exitCode: 124,
      outputTail: 'The environment was not built within 2 seconds',
    });
  });

  it('lets two entries see one file system', async () => {
    const { sandboxId } = await sandbox(setupOf());
    const launch = {
      sandboxId,
      ...bash(
        'while ! grep -s new ~/.made; do sleep 0.1; done; cp -r /etc ~/copy; ls ~/copy/passwd',
      ),
    };
    await driver.launch(launch);
    await driver.writeFiles({
      ...{ sandboxId, signal },
      files: [{ path: '/home/agent/.made', content: 'new\n' }],
    });
    expect((await outcomeOf(driver.follow({ ...launch, offset: 0 }))).stdout).toContain(
      '/home/agent/copy/passwd',
    );
    const record = join(options.stateDir, sandboxId, 'sandbox.json');
    expect(JSON.parse(await readFile(record, 'utf8'))).toMatchObject({ disk: 'image' });
  });
});
