import { randomUUID } from 'node:crypto';
import { expect } from '@jest/globals';
import type { SpritesOptions } from '../../../src/sandboxes/driver/sprites/options.js';
import { SpritesSandboxDriver } from '../../../src/sandboxes/driver/sprites/sprites-sandbox-driver.js';
import { type DriverUnderTest, oneAfterTheOther } from '../../contracts/sandbox-driver.contract.js';
import { FakeSprites } from '../../support/sprites/fake-sprites.js';
import type { Timing } from '../../support/sprites/sprite.js';
import { TEST_LIMITS } from '../sandboxes/local-installations.js';

/** Options of an installation that nobody else has. */
export function spritesOptions(
  fake: FakeSprites,
  more: Partial<SpritesOptions> = {},
): SpritesOptions {
  const name = randomUUID();
  return {
    access: { token: fake.token, baseUrl: fake.url },
    prefix: 'test',
    installation: () => Promise.resolve(name),
    limits: TEST_LIMITS,
    ...more,
  };
}

/** The driver in the test's own process, on a fake of its own. */
export async function installSprites(
  timing: Partial<Timing> = {},
): Promise<DriverUnderTest & { fake: FakeSprites; options: SpritesOptions }> {
  const fake = await new FakeSprites(timing).start();
  const options = spritesOptions(fake);
  return {
    fake,
    options,
    driver: new SpritesSandboxDriver(options),
    isolated: true,
    again: oneAfterTheOther(() => new SpritesSandboxDriver(options)),
    dispose: async () => {
      const left = [...fake.sprites.keys()];
      await fake.stop();
      expect(left).toEqual([]);
    },
  };
}
