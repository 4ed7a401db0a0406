import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it, jest } from '@jest/globals';
import type { SpritesOptions } from '../../../src/sandboxes/driver/sprites/options.js';
import { SpritesSandboxDriver } from '../../../src/sandboxes/driver/sprites/sprites-sandbox-driver.js';
import { bash, outcomeOf } from '../../contracts/sandbox-driver.contract.js';
import { describeWith } from '../../support/requirements.js';
import { FakeSprites } from '../../support/sprites/fake-sprites.js';
import { type Sprite, until } from '../../support/sprites/sprite.js';
import { spritesOptions } from './sprites-installations.js';

jest.setTimeout(300_000);

const signal = new AbortController().signal;

describeWith(['root', 'mount namespaces'], 'setup scripts of sprites', () => {
  const fake = new FakeSprites();
  const warnings: string[] = [];
  let options: SpritesOptions;
  let driver: SpritesSandboxDriver;
  let sprite: Sprite;
  const sandboxId = randomUUID();

  beforeAll(async () => {
    await fake.start();
    const logger = {
      warn: (message: string) => void warnings.push(message),
      debug: () => undefined,
    };
    options = spritesOptions(fake, { logger });
    driver = new SpritesSandboxDriver(options);
    const network = { mode: 'unrestricted', allowedHosts: [] } as const;
    await driver.create({ sandboxId, writableRoot: true, network, signal });
    [sprite = sprite] = fake.sprites.values();
  });

  afterEach(() => fake.faults.clear());

  // Each step is a hook of its own, so that the fake stops whatever fails before.
  afterAll(() => driver.destroy({ sandboxId, signal }));
  afterAll(() => driver.close());
  afterAll(() => fake.stop());

  const setup = (script: string, more: object = {}) =>
    driver.runScript({ sandboxId, as: 'setup', reusable: true, script, signal, ...more });
  const exists = (path: string) => existsSync(join(sprite.machine.folder, 'upper', path));

  async function run(script: string): Promise<string> {
    const launch = { sandboxId, ...bash(script) };
    await driver.launch(launch);
    return (await outcomeOf(driver.follow({ ...launch, offset: 0 }))).stdout;
  }

  it.each([
    ['was aborted', async (stop: AbortController) => stop.abort()],
    ['lost its machine', () => sprite.goCold()],
  ])('begin again from the state before, if the first one %s', async (how, interrupt) => {
    const name = how.replaceAll(' ', '-');
    await run(`echo before > ~/${name}`);
    const script = `echo half >> /usr/local/${name}; echo half >> ~/${name}
      [ -n "$GO" ] || sleep 661; cp /usr/local/${name} /usr/local/${name}-whole`;
    const stop = new AbortController();
    const first = setup(script, { signal: stop.signal }).catch((error: unknown) => error);
    await until(() => exists(`usr/local/${name}`));
    await interrupt(stop);
    expect(await first).not.toMatchObject({ exitCode: 0 });
    const policy = sprite.policies.at(-1);
    expect((await setup(script, { env: { GO: '1' } })).exitCode).toBe(0);
    expect(await run(`cat /usr/local/${name}-whole ~/${name}`)).toBe('half\nbefore\nhalf\n');
    expect(sprite.policies.at(-1)).toEqual(policy);
  });

  it('do not run where an interrupted restore has left no network policy', async () => {
    const sandbox = { sandboxId: randomUUID(), signal };
    const network = { mode: 'limited', allowedHosts: [] } as const;
    const gateway = { url: 'https://gateway.example:8443' };
    const limited = new SpritesSandboxDriver({ ...options, gateway });
    await limited.create({ ...sandbox, writableRoot: true, network });
    await limited.close();
    const other = [...fake.sprites.values()].find((each) => each !== sprite);
    expect((await setup('exit 3', sandbox)).exitCode).toBe(3);
    // As if the worker had been killed after it asked for the restore.
    await other?.restore(other.checkpoints.at(-1)?.id ?? '');
    expect(other?.rules).toEqual([]);
    const lost = { kind: 'failed', message: expect.stringContaining('lost its network policy') };
    await expect(setup('touch ~/ran', sandbox)).rejects.toMatchObject(lost);
    await driver.destroy(sandbox);
  });

  it('install what agents can read', async () => {
    await setup('umask; echo installed > /usr/local/installed');
    expect(await run('cat /usr/local/installed; umask')).toBe('installed\n0022\n');
  });

  it('that failed leave nothing to the next one', async () => {
    const failed = await setup('touch /usr/local/broken; rm -f /bin/rm /usr/bin/rm; exit 3');
    expect(failed.exitCode).toBe(3);
    const next = await setup(
      'ls /usr/local/broken 2>/dev/null; command -v rm; touch /usr/local/next',
    );
    expect(next).toMatchObject({ exitCode: 0, outputTail: expect.stringMatching(/^\S+\/rm\n$/) });
    expect(await run('ls /usr/local/next')).toBe('/usr/local/next\n');
  });

  it('that break the machine are undone, too', async () => {
    const { restored } = sprite;
    const broken = setup('rm -f /usr/local/bin/sudo; exit 3');
    await expect(broken).rejects.toMatchObject({ kind: 'failed' });
    // As another worker, which does not know what is installed there.
    const other = new SpritesSandboxDriver(options);
    const script = 'command -v sudo';
    const next = await other.runScript({ sandboxId, as: 'setup', script, signal });
    expect(next).toEqual({ exitCode: 0, outputTail: '/usr/local/bin/sudo\n' });
    await other.close();
    expect(sprite.restored).toBe(restored + 1);
  });

  it('are not repeated once they have succeeded, unless they depend on the session', async () => {
    const script = 'echo ran >> ~/ran';
    const restored = sprite.restored;
    for (const env of [{}, {}, { A: '1' }]) await setup(script, { env });
    expect(await run('cat ~/ran')).toBe('ran\nran\n');
    for (const reusable of [false, false]) await setup(script, { reusable });
    expect(await run('cat ~/ran')).toBe('ran\n'.repeat(4));
    expect(sprite.restored).toBe(restored);
  });

  it('run without a checkpoint if the vendor makes none', async () => {
    fake.faults.always = ({ path }) =>
      path.endsWith('/checkpoint')
        ? { refuse: { status: 400, code: 'checkpoint_failed', message: 'no room' } }
        : undefined;
    const before = sprite.checkpoints.length;
    expect((await setup('touch /usr/local/without')).exitCode).toBe(0);
    expect(await run('ls /usr/local/without')).toBe('/usr/local/without\n');
    expect(sprite.checkpoints).toHaveLength(before);
    expect(warnings).toEqual([expect.stringContaining('no room')]);
  });
});
