import { afterAll, afterEach, beforeAll, expect, it, jest } from '@jest/globals';
import { runCli } from '../../support/cli.js';
import { describeWith } from '../../support/requirements.js';
import { query, type Service } from '../../support/service.js';
import {
  eventually,
  leaveNothing,
  SessionsOf,
  startSessionService,
} from '../../support/sessions.js';
import { FakeSprites } from '../../support/sprites/fake-sprites.js';
import { type Refusal, RATE_LIMITED, UNAVAILABLE } from '../../support/sprites/faults.js';
import type { Sprite } from '../../support/sprites/sprite.js';

jest.setTimeout(300_000);

const KEY = 'sk-planted-0123456789';

describeWith(['root', 'mount namespaces'], 'the service with sandboxes on sprites', () => {
  const fake = new FakeSprites();
  let service: Service;
  let sessions: SessionsOf;
  const env = (): Record<string, string | undefined> => ({
    SANDBOX_DRIVER: 'sprites',
    SPRITES_TOKEN: fake.token,
    SPRITES_BASE_URL: fake.url,
    SPRITES_PREFIX: 'e2e',
    METRICS_PORT: '0',
    GATEWAY_URL: undefined,
    ANTHROPIC_API_KEY: undefined,
    OPENAI_API_KEY: undefined,
    GEMINI_API_KEY: undefined,
  });

  beforeAll(async () => {
    await fake.start();
    service = await startSessionService(env());
    sessions = new SessionsOf(service, service);
  });

  afterEach(() => {
    fake.faults.clear();
    fake.limit = Number.POSITIVE_INFINITY;
  });

  afterAll(async () => {
    await leaveNothing(service, [sessions]);
    await eventually(() => fake.sprites.size === 0, 'no sprite to be left');
  });
  // Hooks of their own, so that service and fake stop whatever fails before.
  afterAll(() => service.stop());
  afterAll(() => fake.stop());

  const onlySprite = (): Sprite => fake.sprite([...fake.sprites.keys()][0] ?? '');

  it('continues an idle session with its files and history after a warm and a cold wake', async () => {
    const id = await sessions.completed('echo one > ~/kept; echo one > kept; cat ~/kept');
    const sprite = onlySprite();
    expect(sprite.name).toMatch(/^e2e-[0-9a-f]{12}-[0-9a-f]{32}$/);
    await sprite.pause();
    await sessions.prompt(id, 'cat ~/kept kept; echo two >> ~/kept');
    expect((await sessions.stream(id).end()).output()).toBe('one\none\none\n');
    await sessions.reach(id, 'completed');
    await sprite.goCold();
    await sessions.prompt(id, 'cat ~/kept kept');
    expect((await sessions.stream(id).end()).output()).toBe('one\none\none\none\ntwo\none\n');
    expect(sprite.wakes).toEqual({ warm: 1, cold: 1 });
    await leaveNothing(service, [sessions]);
    await eventually(() => fake.sprites.size === 0, 'the sprite to be removed');
  });

  it.each([
    ['Waiting for a free sprite: the account runs as many as it may', undefined],
    ['Waiting for Sprites: too many sandboxes were created at once', RATE_LIMITED],
    ['Waiting for Sprites, which has no room at the moment', UNAVAILABLE],
  ])('says in progress and stream: %s', async (sentence, refuse: Refusal | undefined) => {
    if (refuse === undefined) fake.limit = 0;
    else {
      fake.faults.always = ({ method, path }) =>
        method === 'POST' && path === '/v1/sprites' ? { refuse } : undefined;
    }
    const id = await sessions.create('echo up');
    const stream = sessions.stream(id);
    await stream.until(({ comments }) => comments.includes(sentence));
    expect((await sessions.get(id)).progress).toBe(sentence);
    fake.faults.clear();
    fake.limit = Number.POSITIVE_INFINITY;
    await stream.end();
    expect(stream.output()).toBe('up\n');
    expect((await sessions.get(id)).progress).toBeNull();
  });

  it('counts its requests by status, and the pauses before it repeats one', async () => {
    fake.faults.next('POST', '/policy/network', { refuse: UNAVAILABLE });
    await sessions.completed();
    const url = /Metrics on (http:[^\s"]+)/.exec(service.logs())?.[1] ?? '';
    const text = await (await fetch(url)).text();
    const value = (name: string): number =>
      Number(new RegExp(`^agent_sessions_sprites_${name} (\\S+)$`, 'm').exec(text)?.[1]);
    expect(value('requests_total{operation="create",status="201"}')).toBeGreaterThan(0);
    expect(value('requests_total{operation="policy",status="503"}')).toBe(1);
    expect(value('requests_total{operation="exec",status="101"}')).toBeGreaterThan(0);
    expect(value('waits_total')).toBeGreaterThan(0);
    expect(value('wait_seconds_total')).toBeGreaterThan(0.2);
  });

  it('refuses sessions whose network is limited, and says what is missing', async () => {
    const environment_id = await sessions.createEnvironment({
      name: 'limited',
      networking: { type: 'limited' },
    });
    const stream = await sessions.run('echo never', { environment_id });
    expect(stream.events.find(({ state }) => state === 'failed')).toMatchObject({
      stage: 'create_sprite',
      message: 'a limited network needs the gateway: set GATEWAY_URL',
    });
    expect(stream.output()).toBe('');
  });

  it("ends turns that need credentials without giving them to anybody: a user's key, a repository's token", async () => {
    const [row] = await query<{ name: string }>(
      service.databaseUrl,
      'SELECT name FROM users WHERE id = $1',
      [service.userId],
    );
    const cli = { DATABASE_URL: service.databaseUrl, DATA_DIR: service.dataDir };
    const set = await runCli(['user', 'key', 'set', row?.name ?? '', 'anthropic'], cli, KEY);
    expect(set).toMatchObject({ code: 0 });
    const agent_id = await sessions.createAgent({ provider: 'claude', model: 'claude-opus-4-6' });
    const resource = {
      type: 'github_repository',
      url: 'https://github.com/acme/private',
      mount_path: 'private',
      authorization_token: KEY,
    };
    for (const members of [{ agent_id }, { resources: [resource] }]) {
      const stream = await sessions.run('echo never', members);
      expect(stream.last).toMatchObject({
        type: 'error',
        message: expect.stringContaining('without a gateway: set GATEWAY_URL'),
      });
    }
    expect(JSON.stringify(fake.seen)).not.toContain(KEY);
  });

  it('accepts no session for a provider whose key it could not use', async () => {
    const keyed = await startSessionService({ ...env(), ANTHROPIC_API_KEY: KEY });
    try {
      const own = new SessionsOf(keyed, keyed);
      const answer = await own.post('echo never');
      expect(answer).toMatchObject({ status: 502 });
      expect(answer.body.detail).toContain('without a gateway: set GATEWAY_URL');
    } finally {
      await keyed.stop();
    }
  });

  it('is examined by doctor', async () => {
    const cli = { ...env(), DATABASE_URL: service.databaseUrl, DATA_DIR: service.dataDir };
    const before = [...fake.sprites.keys()];
    const good = await runCli(['doctor', '--only', 'sandboxes'], cli);
    expect(good.stdout).toContain('The driver sprites is ready');
    expect(good.stdout).toContain('its network is open, because there is no GATEWAY_URL');
    expect(good.code).toBe(0);
    const wrong = await runCli(['doctor', '--only', 'sandboxes'], { ...cli, SPRITES_TOKEN: 'no' });
    expect(wrong.stdout).toContain('Sprites does not accept the token: check SPRITES_TOKEN');
    expect(wrong.code).not.toBe(0);
    expect([...fake.sprites.keys()]).toEqual(before);
  });
});
