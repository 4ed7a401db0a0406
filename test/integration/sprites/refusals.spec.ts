import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, it } from '@jest/globals';
import type { RemoteGateway } from '../../../src/gateway/network/remote-gateway.js';
import type { OnSharedWork } from '../../../src/sandboxes/driver/sandbox-driver.js';
import { SpriteNames, type SpritesOptions } from '../../../src/sandboxes/driver/sprites/options.js';
import { SpritesSandboxDriver } from '../../../src/sandboxes/driver/sprites/sprites-sandbox-driver.js';
import { bash, outcomeOf } from '../../contracts/sandbox-driver.contract.js';
import { describeWith } from '../../support/requirements.js';
import { FakeSprites } from '../../support/sprites/fake-sprites.js';
import { RATE_LIMITED, UNAVAILABLE } from '../../support/sprites/faults.js';
import { until } from '../../support/sprites/sprite.js';
import { spritesOptions } from './sprites-installations.js';

const signal = new AbortController().signal;
const OPEN = { mode: 'unrestricted', allowedHosts: [] } as const;
const LIMITED = { mode: 'limited', allowedHosts: [] } as const;
const LINK = 'planted-link-with-a-secret';
/** The driver asks it for the address of a sandbox, with its secret, and nothing else here. */
const REMOTE = { linkOf: () => LINK } as unknown as RemoteGateway;

describeWith(['root', 'mount namespaces'], 'sprites', () => {
  const fake = new FakeSprites();
  let options: SpritesOptions;
  let driver: SpritesSandboxDriver;

  beforeAll(async () => {
    await fake.start();
    options = spritesOptions(fake);
    driver = new SpritesSandboxDriver(options);
  });

  afterEach(() => {
    fake.faults.clear();
    fake.limit = Number.POSITIVE_INFINITY;
  });

  // Each step is a hook of its own, so that the fake stops whatever fails before.
  afterAll(() => driver.close());
  afterAll(async () => {
    const left = [...fake.sprites.keys()];
    await fake.stop();
    expect(left).toEqual([]);
  });

  async function created(onSharedWork?: OnSharedWork): Promise<string> {
    const sandboxId = randomUUID();
    const how = { sandboxId, writableRoot: false, network: OPEN, signal };
    await driver.create({ ...how, ...(onSharedWork && { onSharedWork }) });
    return sandboxId;
  }

  function onlySprite(): string {
    const [name = '', ...more] = fake.sprites.keys();
    expect(more).toEqual([]);
    return name;
  }

  it('with a limited network are refused without a gateway, before anything is created', async () => {
    const sandboxId = randomUUID();
    const before = fake.created;
    const how = { sandboxId, writableRoot: false, network: LIMITED, signal };
    const refused = { kind: 'unsupported', message: expect.stringContaining('set GATEWAY_URL') };
    await expect(driver.create(how)).rejects.toMatchObject(refused);
    expect(fake.created).toBe(before);
    const open = await created();
    await expect(
      driver.restrictNetwork({ sandboxId: open, network: LIMITED, signal }),
    ).rejects.toMatchObject(refused);
    await driver.destroy({ sandboxId: open, signal });
  });

  it('are not listed only to see whether the interface answers', async () => {
    const begin = fake.seen.length;
    await new SpritesSandboxDriver(options).preflight({ signal });
    const asked = fake.seen
      .slice(begin)
      .map(({ method, url }) => [
        method,
        new URL(url, 'http://fake').searchParams.get('max_results'),
      ]);
    expect(asked).toEqual([['GET', '1']]);
  });

  it('with a limited network reach the gateway and what is allowed, before anything runs in them', async () => {
    const gateway = { url: 'https://gateway.example:8443', remote: REMOTE };
    const limited = new SpritesSandboxDriver(spritesOptions(fake, { gateway }));
    const sandboxId = randomUUID();
    const begin = fake.seen.length;
    await limited.create({ sandboxId, writableRoot: false, network: LIMITED, signal });
    const name = onlySprite();
    const closed = [
      { domain: 'gateway.example', action: 'allow' },
      { domain: '*', action: 'deny' },
    ];
    expect(fake.sprite(name).policies).toEqual([closed]);
    const paths = fake.seen.slice(begin).map(({ method, path }) => `${method} ${path}`);
    expect(paths.slice(0, 3)).toEqual([
      'POST /v1/sprites',
      'POST /v1/sprites/*/policy/network',
      'POST /v1/sprites/*/exec',
    ]);
    // The secret of the sandbox is part of the link, and addresses are logged on the way.
    expect(JSON.stringify(fake.seen)).not.toContain(LINK);
    const network = { mode: 'limited', allowedHosts: ['*.example.com'] } as const;
    await limited.restrictNetwork({ sandboxId, network, signal });
    await limited.restrictNetwork({ sandboxId, network: OPEN, signal });
    const { policies } = fake.sprite(name);
    expect(policies).toEqual([
      closed,
      [{ domain: '*.example.com', action: 'allow' }, ...closed],
      [{ domain: '*', action: 'allow' }],
    ]);
    await limited.destroy({ sandboxId, signal });
    await limited.close();
  });

  it.each([
    ['answered', {}],
    ['not answered', { loseAnswer: true }],
  ])(
    'with a limited network reach hosts of packages only while programs are installed: %s',
    async (_, fault) => {
      const gateway = { url: 'https://gateway.example:8443', remote: REMOTE };
      const limited = new SpritesSandboxDriver(spritesOptions(fake, { gateway }));
      const sandboxId = randomUUID();
      await limited.create({ sandboxId, writableRoot: false, network: LIMITED, signal });
      const bin = 'no-such-program';
      const program = { bin, package: bin, version: '1.0.0', entries: [`${bin}/cli.js`] };
      const stop = new AbortController();
      const how = { sandboxId, signal: stop.signal, network: LIMITED, programs: [program] };
      fake.faults.next('POST', 'policy/network', fault);
      const installed = limited.providePrograms(how);
      const name = onlySprite();
      await until(() => fake.sprite(name).policies.length === 2);
      // The policy has to be back however the installation ends.
      stop.abort();
      await expect(installed).rejects.toThrow();
      const [closed, widened, after, ...more] = fake.sprite(name).policies;
      expect([after, more]).toEqual([closed, []]);
      expect(widened?.at(-1)).toEqual({ domain: '*', action: 'deny' });
      expect(widened).toContainEqual({ domain: 'pypi.org', action: 'allow' });
      await limited.destroy({ sandboxId, signal });
      await limited.close();
    },
  );

  it('do not keep the hosts of packages that an interrupted installation of programs has allowed', async () => {
    const gateway = { url: 'https://gateway.example:8443', remote: REMOTE };
    const limited = new SpritesSandboxDriver(spritesOptions(fake, { gateway }));
    const sandboxId = randomUUID();
    await limited.create({ sandboxId, writableRoot: false, network: LIMITED, signal });
    const { policies } = fake.sprite(onlySprite());
    // As if its worker had been killed when the program was there.
    const wide = { mode: 'limited', allowedHosts: ['pypi.org'] } as const;
    await limited.restrictNetwork({ sandboxId, network: wide, signal });
    const program = { bin: 'bash', package: 'bash', version: '1.0.0', entries: [] };
    const how = { sandboxId, signal, network: LIMITED, programs: [program] };
    await limited.providePrograms(how);
    expect(policies.at(-1)).toEqual(policies[0]);
    await limited.destroy({ sandboxId, signal });
    await limited.close();
  });

  it('are not made for sessions whose keys they could not use', async () => {
    const needsGateway = 'sprites get no keys of model providers without a gateway';
    const keyed = spritesOptions(fake, { needsGateway });
    await expect(new SpritesSandboxDriver(keyed).preflight({ signal })).rejects.toMatchObject({
      kind: 'unavailable',
      message: `${needsGateway}: set GATEWAY_URL`,
    });
    expect(await driver.gateway()).toMatchObject({ isMissing: true });
  });

  it.each([
    [RATE_LIMITED, 'Waiting for Sprites: too many sandboxes were created at once'],
    [UNAVAILABLE, 'Waiting for Sprites, which has no room at the moment'],
  ])('wait while the answer is %j, and say so', async (refuse, sentence) => {
    fake.faults.next('POST', '/v1/sprites', { refuse });
    const told: (string | null)[] = [];
    const sandboxId = await created((what) => told.push(what));
    expect(told).toEqual([sentence, null]);
    await driver.destroy({ sandboxId, signal });
  });

  it('wait for a free place, and say so', async () => {
    fake.limit = fake.sprites.size + 1;
    const first = await created();
    const told: (string | null)[] = [];
    const waiting = created((what) => told.push(what));
    await until(() => told.length > 0);
    await driver.destroy({ sandboxId: first, signal });
    const second = await waiting;
    expect(told[0]).toBe('Waiting for a free sprite: the account runs as many as it may');
    expect(told.at(-1)).toBeNull();
    await driver.destroy({ sandboxId: second, signal });
  });

  it('stop waiting when their caller does', async () => {
    fake.limit = 0;
    const how = { sandboxId: randomUUID(), writableRoot: false, network: OPEN };
    const limit = AbortSignal.timeout(200);
    await expect(driver.create({ ...how, signal: limit })).rejects.toMatchObject({
      kind: 'aborted',
    });
  });

  it('stop waiting when their driver is closed', async () => {
    fake.limit = 0;
    const other = new SpritesSandboxDriver(options);
    let onSharedWork: OnSharedWork = () => undefined;
    const waits = new Promise<void>((resolve) => (onSharedWork = () => resolve()));
    const how = { sandboxId: randomUUID(), writableRoot: false, network: OPEN, signal };
    const waiting = other.create({ ...how, onSharedWork });
    await waits;
    await other.close();
    await expect(waiting).rejects.toMatchObject({ kind: 'aborted' });
  });

  it('are unknown, not gone, while the interface does not say', async () => {
    const sandboxId = await created();
    const wrong = new SpritesSandboxDriver({
      ...options,
      access: { token: 'wrong', baseUrl: fake.url },
    });
    expect(await wrong.exists({ sandboxId, signal })).toBe('unknown');
    const elsewhere = new SpritesSandboxDriver({
      ...options,
      access: { token: fake.token, baseUrl: `${fake.url}/other` },
    });
    expect(await elsewhere.exists({ sandboxId, signal })).toBe('unknown');
    // The answer and the list of sprites contradict each other.
    const refuse = { status: 404, code: 'not_found', message: 'no such sprite' };
    fake.faults.next('GET', '/v1/sprites/*', { refuse });
    expect(await driver.exists({ sandboxId, signal })).toBe('unknown');
    await expect(wrong.list({ signal })).rejects.toMatchObject({ kind: 'unavailable' });
    await expect(wrong.preflight({ signal })).rejects.toThrow('check SPRITES_TOKEN');
    await driver.destroy({ sandboxId, signal });
  });

  it('are not restarted because it takes seconds to reach the supervisor of a launch that is to be killed', async () => {
    const sandboxId = await created();
    const launch = { sandboxId, ...bash('echo on; sleep 642') };
    await driver.launch(launch);
    const other = new SpritesSandboxDriver(options);
    fake.faults.next('WS', '/exec', { delayMs: 3000 });
    await other.kill({ ...launch, signal });
    const { exit } = await outcomeOf(other.follow({ ...launch, offset: 0 }));
    expect(exit.reason).toBe('killed');
    expect(fake.seen.filter(({ path }) => path.endsWith('/restart'))).toEqual([]);
    await other.close();
    await driver.destroy({ sandboxId, signal });
  });

  it('are examined by one request, however many there are', async () => {
    const sandboxId = await created();
    const { start } = new SpriteNames(options.prefix, await options.installation());
    for (let n = 0; n < 60; n += 1) {
      const name = `${start}${String(n).padStart(32, '0')}`;
      const headers = { Authorization: `Bearer ${fake.token}` };
      const body = JSON.stringify({ name });
      await fetch(`${fake.url}/v1/sprites`, { method: 'POST', headers, body });
    }
    expect(await driver.list({ signal })).toHaveLength(61);
    const before = fake.seen.length;
    await new SpritesSandboxDriver(options).preflight({ signal });
    expect(fake.seen.slice(before).map(({ method, path }) => [method, path])).toEqual([
      ['GET', '/v1/sprites'],
    ]);
    for (const id of await driver.list({ signal })) await driver.destroy({ sandboxId: id, signal });
    expect(await driver.exists({ sandboxId, signal })).toBe('no');
  });

  it('of other installations are left alone', async () => {
    const sandboxId = await created();
    const other = new SpritesSandboxDriver(spritesOptions(fake));
    expect(await other.list({ signal })).toEqual([]);
    await other.destroy({ sandboxId, signal });
    expect(await driver.exists({ sandboxId, signal })).toBe('yes');
    await driver.destroy({ sandboxId, signal });
  });

  it('that vanish end the launch as lost', async () => {
    const sandboxId = await created();
    const launch = { sandboxId, ...bash('echo on; sleep 641') };
    await driver.launch(launch);
    const ended = outcomeOf(driver.follow({ ...launch, offset: 0 }));
    await fake.vanish(onlySprite());
    expect((await ended).exit.reason).toBe('lost');
    expect(await driver.exists({ sandboxId, signal })).toBe('no');
  });
});
