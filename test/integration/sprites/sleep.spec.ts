import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { SpritesSandboxDriver } from '../../../src/sandboxes/driver/sprites/sprites-sandbox-driver.js';
import { bash, outcomeOf } from '../../contracts/sandbox-driver.contract.js';
import { describeWith } from '../../support/requirements.js';
import { FakeSprites } from '../../support/sprites/fake-sprites.js';
import { type Sprite, until } from '../../support/sprites/sprite.js';
import { spritesOptions } from './sprites-installations.js';

const signal = new AbortController().signal;

describeWith(['root', 'mount namespaces'], 'sprites that sleep', () => {
  const fake = new FakeSprites({ pauseMs: 1500, coldMs: 600_000, disconnectMs: 200 });
  let driver: SpritesSandboxDriver;
  let sprite: Sprite;
  const sandboxId = randomUUID();

  beforeAll(async () => {
    await fake.start();
    driver = new SpritesSandboxDriver(spritesOptions(fake));
    const network = { mode: 'unrestricted', allowedHosts: [] } as const;
    await driver.create({ sandboxId, writableRoot: false, network, signal });
    sprite = fake.sprite([...fake.sprites.keys()][0] ?? '');
  });

  // Each step is a hook of its own, so that the fake stops whatever fails before.
  afterAll(() => driver.destroy({ sandboxId, signal }));
  afterAll(() => driver.close());
  afterAll(() => fake.stop());

  async function run(script: string): Promise<string> {
    const launch = { sandboxId, ...bash(script) };
    await driver.launch(launch);
    return (await outcomeOf(driver.follow({ ...launch, offset: 0 }))).stdout;
  }

  it('are awake exactly while a turn runs, also if nobody follows it', async () => {
    const launch = { sandboxId, ...bash('sleep 4; echo done') };
    await driver.launch(launch);
    await until(() => sprite.tasks.live.length === 1);
    expect(sprite.tasks.live).toEqual([`turn-${launch.launchId}`]);
    const { wakes } = sprite;
    await until(() => sprite.tasks.live.length === 0);
    expect(sprite.wakes).toEqual(wakes);
    await until(() => sprite.status === 'warm');
    expect((await outcomeOf(driver.follow({ ...launch, offset: 0 }))).stdout).toBe('done\n');
  });

  it('go on with the same files after a warm and after a cold wake', async () => {
    await run('echo one > ~/kept; echo one > /tmp/kept; echo one > kept');
    await until(() => sprite.status === 'warm');
    const { warm, cold } = sprite.wakes;
    expect(await run('cat ~/kept /tmp/kept kept; echo two >> ~/kept')).toBe('one\none\none\n');
    expect(sprite.wakes.warm).toBe(warm + 1);
    await until(() => sprite.status === 'warm');
    await sprite.goCold();
    expect(await run('cat ~/kept /tmp/kept kept')).toBe('one\ntwo\none\none\n');
    expect(sprite.wakes.cold).toBe(cold + 1);
  });

  it('end what ran when a machine loses its processes as lost, and start it never again', async () => {
    const launch = { sandboxId, ...bash('echo ran >> ~/ran; echo on; sleep 651') };
    await driver.launch(launch);
    for await (const event of driver.follow({ ...launch, offset: 0 })) {
      if (event.kind === 'chunk') break;
    }
    await sprite.goCold();
    const { stdout, exit } = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
    expect([stdout, exit.reason]).toEqual(['on\n', 'lost']);
    await driver.launch(launch);
    expect(await run('cat ~/ran')).toBe('ran\n');
  });

  it('go on with their launches when the vendor starts services again', async () => {
    const launch = {
      sandboxId,
      ...bash('echo ran >> ~/again; for i in $(seq 30); do echo $i; sleep 0.1; done'),
    };
    await driver.launch(launch);
    const followed = outcomeOf(driver.follow({ ...launch, offset: 0 }));
    await sprite.services.restartAll();
    const { stdout, exit } = await followed;
    expect(exit).toMatchObject({ reason: 'exited', exitCode: 0 });
    expect(stdout).toBe(Array.from({ length: 30 }, (_, i) => `${i + 1}\n`).join(''));
    expect(await run('cat ~/again')).toBe('ran\n');
  });
});
