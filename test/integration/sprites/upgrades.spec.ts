import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { SpritesOptions } from '../../../src/sandboxes/driver/sprites/options.js';
import { SpritesSandboxDriver } from '../../../src/sandboxes/driver/sprites/sprites-sandbox-driver.js';
import { bash, outcomeOf } from '../../contracts/sandbox-driver.contract.js';
import { describeWith } from '../../support/requirements.js';
import { FakeSprites } from '../../support/sprites/fake-sprites.js';
import type { Sprite } from '../../support/sprites/sprite.js';
import { spritesOptions } from './sprites-installations.js';

const signal = new AbortController().signal;
const OLD = '0123456789abcdef';
const FOLDER = `/.agent-session/runtime-${OLD}`;
const SOCKET = `/.agent-session/socket-${OLD}`;
const SERVICE = `agent-session-${OLD}`;

describeWith(['root', 'mount namespaces'], 'sprites of another version of the service', () => {
  const fake = new FakeSprites();
  let options: SpritesOptions;
  const sandboxId = randomUUID();
  let sprite: Sprite;

  beforeAll(async () => {
    await fake.start();
    options = spritesOptions(fake);
    await connect();
    [sprite = sprite] = fake.sprites.values();
    await inside(`mkdir -p ${FOLDER}; touch ${FOLDER}/complete ${SOCKET}`);
    await sprite.services.put(SERVICE, { cmd: 'sleep', args: ['671'] });
  });

  afterAll(async () => {
    const driver = new SpritesSandboxDriver(options);
    try {
      await driver.destroy({ sandboxId, signal });
    } finally {
      await driver.close();
    }
  });
  // A hook of its own, so that the fake stops whatever fails before.
  afterAll(() => fake.stop());

  /** As a service does that has just started, and runs something. */
  async function connect(): Promise<string> {
    const driver = new SpritesSandboxDriver(options);
    const network = { mode: 'unrestricted', allowedHosts: [] } as const;
    await driver.create({ sandboxId, writableRoot: false, network, signal });
    const launch = { sandboxId, ...bash('echo up') };
    await driver.launch(launch);
    const { stdout } = await outcomeOf(driver.follow({ ...launch, offset: 0 }));
    await driver.close();
    return stdout;
  }

  async function inside(script: string): Promise<string> {
    const child = sprite.machine.spawn({ command: ['bash', '-c', script], root: true });
    let said = '';
    child.stdout?.on('data', (data: Buffer) => (said += data.toString()));
    await once(child, 'close');
    return said;
  }

  const look = async () => [
    await inside(`ls -d ${FOLDER} ${SOCKET} 2>/dev/null`),
    sprite.services.has(SERVICE),
  ];
  const there = [`${FOLDER}\n${SOCKET}\n`, true];

  it('keep its programs while it may still be in use', async () => {
    expect(await connect()).toBe('up\n');
    expect(await look()).toEqual(there);
  });

  it('keep its programs while one of its launches runs', async () => {
    await inside(`touch -d '-2 hours' ${FOLDER}/complete`);
    const running = sprite.machine.spawn({
      command: ['bash', '-c', `exec -a ${FOLDER}/dist/src/supervisor/main.js sleep 672`],
      root: true,
    });
    const ended = once(running, 'exit');
    while ((await inside('pgrep -f "[s]upervisor/main.js 672"')) === '');
    await connect();
    expect(await look()).toEqual(there);
    await inside('pkill -f "[s]upervisor/main.js"');
    await ended;
  });

  it('lose its programs and its service when nothing uses them any more', async () => {
    expect(await connect()).toBe('up\n');
    expect(await look()).toEqual(['', false]);
    expect(await connect()).toBe('up\n');
  });
});
