import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { SpritesSandboxDriver } from '../../../src/sandboxes/driver/sprites/sprites-sandbox-driver.js';
import { bash, outcomeOf } from '../../contracts/sandbox-driver.contract.js';
import { describeWith } from '../../support/requirements.js';
import { FakeSprites } from '../../support/sprites/fake-sprites.js';
import {
  AT_CAPACITY,
  RATE_LIMITED,
  UNAVAILABLE,
  type Asked,
  type Fault,
} from '../../support/sprites/faults.js';
import { spritesOptions } from './sprites-installations.js';

const signal = new AbortController().signal;
const OPEN = { mode: 'unrestricted', allowedHosts: [] } as const;
/** `npm run sprites:faults` has more. */
const FAULTS = Number(process.env['SPRITES_FAULTS'] ?? 40);
const SEED = Number(process.env['SPRITES_SEED'] ?? 16);
const LIMIT_MS = 60_000 + FAULTS * 3_000;
const TURNS = 2;
const WORKERS = 2;
const LINES = 4000;
/** Prints every line once, and the number of starts in this sandbox. */
const SCRIPT = `echo started >> ~/starts; for i in $(seq ${LINES}); do echo "line $i"; done; wc -l < ~/starts`;
const EXPECTED = Array.from({ length: LINES }, (_, i) => `line ${i + 1}\n`).join('');

/** Numbers that are the same in each run. */
function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return state / 2 ** 32;
  };
}

/** Fails one request in three, and two WebSockets in three, each time in another way. */
function faultsFrom(random: () => number): (asked: Asked) => Fault | undefined {
  const soon = { retryAfterSeconds: 0.05 };
  const always: readonly (() => Fault)[] = [
    () => ({ refuse: { ...RATE_LIMITED, ...soon } }),
    () => ({ refuse: { ...AT_CAPACITY, ...soon } }),
    () => ({ refuse: { ...UNAVAILABLE, ...soon } }),
    () => ({ drop: true }),
    () => ({ delayMs: Math.floor(random() * 100) }),
  ];
  const http: typeof always = [...always, () => ({ loseAnswer: true })];
  const webSocket: typeof always = [
    ...always,
    () => ({ closeAtOnce: true }),
    () => ({ loseExit: true, cutAfter: Math.floor(random() * 4000) }),
    () => ({ cutAfter: Math.floor(random() * 4000) }),
    () => ({ cutAfter: 4000 + Math.floor(random() * 60_000) }),
  ];
  return ({ method }) => {
    if (random() > (method === 'WS' ? 0.7 : 0.34)) return undefined;
    const kinds = method === 'WS' ? webSocket : http;
    return kinds[Math.floor(random() * kinds.length)]?.();
  };
}

describeWith(['root', 'mount namespaces'], `sprites with ${FAULTS} faults`, () => {
  // Programs of connections that were cut end soon: the vendor's 10 seconds would leave dozens of them.
  const fake = new FakeSprites({ disconnectMs: 200 });
  let driver: SpritesSandboxDriver;

  beforeAll(async () => {
    await fake.start();
    driver = new SpritesSandboxDriver(spritesOptions(fake));
  });

  // Each step is a hook of its own, so that the fake stops whatever fails before.
  afterAll(() => driver.close());
  afterAll(() => fake.stop());

  it(
    'lose, repeat and start nothing twice, and leave nothing behind',
    async () => {
      fake.faults.always = faultsFrom(randomNumbers(SEED));
      const tally = { launches: 0, starts: 0, lost: 0, repeated: 0 };
      const work = async (): Promise<void> => {
        while (fake.faults.taken < FAULTS) {
          const sandboxId = randomUUID();
          await driver.create({ sandboxId, writableRoot: false, network: OPEN, signal });
          for (let turn = 1; turn <= TURNS; turn += 1) {
            const launch = { sandboxId, ...bash(SCRIPT, { deadline: Date.now() + LIMIT_MS }) };
            await driver.launch(launch);
            const { stdout, exit } = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
            expect(exit).toEqual({ kind: 'exit', reason: 'exited', exitCode: 0 });
            const lines = stdout.split('\n').slice(0, -2);
            tally.launches += 1;
            tally.starts += Number(stdout.split('\n').at(-2)) - turn + 1;
            tally.lost += LINES - new Set(lines).size;
            tally.repeated += lines.length - new Set(lines).size;
            expect(stdout).toBe(`${EXPECTED}${turn}\n`);
            await driver.discardSpool(launch);
          }
          await driver.destroy({ sandboxId, signal });
        }
      };
      await Promise.all(Array.from({ length: WORKERS }, work));
      fake.faults.clear();
      const left = [...fake.sprites.keys()];
      if (process.env['SPRITES_FAULTS'] !== undefined) {
        const { launches, starts, lost, repeated } = tally;
        process.stdout.write(
          `${fake.faults.taken} faults (seed ${SEED}), ${fake.created} sprites, ${launches} launches: ${lost} lines lost, ` +
            `${repeated} repeated, ${starts - launches} second starts, ${left.length} sprites left\n`,
        );
      }
      expect(fake.faults.taken).toBeGreaterThanOrEqual(FAULTS);
      expect(tally).toEqual({
        launches: tally.launches,
        starts: tally.launches,
        lost: 0,
        repeated: 0,
      });
      expect(tally.launches).toBeGreaterThan(0);
      expect(left).toEqual([]);
      expect(await driver.list({ signal })).toEqual([]);
    },
    LIMIT_MS,
  );
});
