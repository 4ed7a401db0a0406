import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { describeWith, testWith } from '../support/requirements.js';
import { KeyRing, secretContext } from '../../src/secrets/key-ring.js';
import { ENCRYPTION_KEYS, query, type Service } from '../support/service.js';
import {
  eventually,
  leaveNothing,
  prepareSoftware,
  ROOTFS_TIMEOUT_MS,
  SessionsOf,
  startSessionService,
} from '../support/sessions.js';

let service: Service;
let sessions: SessionsOf;
beforeAll(async () => {
  service = await startSessionService();
  sessions = new SessionsOf(service, service);
});
afterAll(async () => {
  await leaveNothing(service, [sessions]);
  await service.stop();
});

const both = (...names: string[]) => names.flatMap((name) => [`${name} started`, `${name} done`]);

describe('stages', () => {
  it('tell how long they took', async () => {
    const begun = performance.now();
    const stream = await sessions.run('echo hi');
    const elapsedMs = performance.now() - begun;
    const stages = stream.events.filter(({ type }) => type === 'stage');
    for (const stage of stages.filter(({ state }) => state === 'done')) {
      expect(Number.isInteger(stage.duration_ms)).toBe(true);
      expect(stage.duration_ms).toBeLessThanOrEqual(Math.ceil(elapsedMs));
    }
    expect(stream.events.findIndex(({ type }) => type === 'turn_start')).toBe(stages.length + 1);
  });

  it('of everything that an agent and an environment ask for come in order', async () => {
    const environment_id = await sessions.createEnvironment({
      networking: { type: 'limited' },
      env_vars: { COLOUR: "it's red\nand blue" },
    });
    const agent_id = await sessions.createAgent({
      mcp_servers: [
        {
          type: 'stdio',
          name: 'files',
          command: 'mcp',
          args: ['-v'],
          env: { KEY: 'a-long-secret' },
        },
      ],
      skills: [
        {
          name: 'tidy',
          description: 'Tidies up',
          content: '# Tidy\n',
          files: [{ path: 'a/b.txt', content: 'deep' }],
        },
      ],
    });
    const stream = await sessions.run(
      `printf %s "$COLOUR" | sha256sum; cat ~/.agents/skills/tidy/SKILL.md ~/.agents/skills/tidy/a/b.txt; echo; stat -c %a ~/.mcp.json; cat ~/.mcp.json; echo; (. ~/.session/env; printf %s "$COLOUR" | wc -c)`,
      { agent_id, environment_id },
    );
    expect(stream.stages()).toEqual([
      ...both(
        'create_sprite',
        'network_policy',
        'env_file',
        'provision_setup',
        'mcp_config',
        'skills',
      ),
      'runtime_start started',
    ]);
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
    expect(stream.output()).toContain('# Tidy');
    expect(stream.output()).toContain('deep');
    expect(stream.output()).toMatch(/^600$/m);
    expect(stream.output()).toContain('"files"');
    expect(stream.output()).toMatch(/^17$/m);
  });

  it('export no variable that only the service sets, however it came to be stored', async () => {
    const environment_id = await sessions.createEnvironment({ env_vars: { OK: 'x' } });
    // As an older release stored it.
    const stored = { OK: 'yes', HOME: '/tmp', ANTHROPIC_BASE_URL: 'https://elsewhere.example' };
    await query(
      service.databaseUrl,
      `UPDATE environment_versions SET env_vars_sealed = $2 WHERE environment_id = $1`,
      [
        environment_id,
        KeyRing.parse(ENCRYPTION_KEYS).sealRecord(
          stored,
          secretContext.environmentVersion(environment_id, 1),
        ),
      ],
    );
    const stream = await sessions.run(
      'echo "$OK $HOME [$ANTHROPIC_BASE_URL]"; cat ~/.session/env',
      {
        environment_id,
      },
    );
    expect(stream.output('stdout')).toMatch(/^yes \/home\/\S+ \[\]\nexport OK='yes'\n$/);
    expect(service.logs()).toContain('HOME, ANTHROPIC_BASE_URL not exported');
    expect(service.logs()).not.toContain('elsewhere.example');
  });

  it('are not repeated by a second turn, which finds its files', async () => {
    const id = await sessions.create(
      'echo work > file; echo home > ~/file; mkdir d; echo tmp > /tmp/file; echo more > /var/tmp/more',
    );
    await sessions.stream(id).end();
    await sessions.prompt(id, 'cat file ~/file; ls -d d; cat /tmp/file /var/tmp/more');
    const stream = await sessions.stream(id).end();
    expect(stream.stages()).toEqual([
      ...both('create_sprite', 'env_file', 'provision_setup'),
      'runtime_start started',
      'runtime_start started',
    ]);
    expect(stream.output('stdout')).toBe('work\nhome\nd\ntmp\nmore\n');
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
  });
});

describeWith(['sandboxes with software'], 'environments with software', () => {
  beforeAll(() => prepareSoftware(), ROOTFS_TIMEOUT_MS);

  it('run the setup script with the variables, as root of the sandbox, once', async () => {
    const environment_id = await sessions.createEnvironment({
      env_vars: { COLOUR: 'red' },
      setup_script:
        'echo "$COLOUR $(id -u)" >> /opt/setup; echo noise; pwd > ~/where; echo t > /tmp/t; echo v > /var/tmp/v',
    });
    const id = await sessions.create('cat /opt/setup ~/where /tmp/t /var/tmp/v; id -u', {
      environment_id,
    });
    await sessions.stream(id).end();
    await sessions.prompt(id, 'cat /opt/setup');
    expect((await sessions.stream(id).end()).output()).toBe(
      'red 0\n/workspace\nt\nv\n1000\nred 0\n',
    );
  });

  it('say what is being done, to whoever asks and to streams', async () => {
    const environment_id = await sessions.createEnvironment({ setup_script: 'sleep 3' });
    const id = await sessions.create('echo hi', { environment_id });
    const stream = sessions.stream(id);
    const doing = 'Building the environment: setup script';
    const progress = async () => (await sessions.http.get(`/sessions/${id}`)).body['progress'];
    await eventually(async () => (await progress()) === doing, 'the progress');
    const listed = (await sessions.http.get('/sessions?status=running')).body.data;
    expect(listed.find((session) => session.id === id)).toMatchObject({ progress: doing });
    await stream.end();
    expect(stream.comments).toContain(doing);
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
    expect(await progress()).toBeNull();
  });

  // Only the local driver makes a base system; the Docker driver uses an image.
  testWith(
    ['sandboxes on this host'],
    'do not count waiting for the base system as time of the turn',
    async () => {
      const cache = await mkdtemp(join(tmpdir(), 'cache-'));
      await mkdir(join(cache, 'rootfs'));
      // Holds the lock like another process that makes the system.
      const other = spawn('flock', [join(cache, 'rootfs/.lock'), 'sleep', '86400'], {
        detached: true,
      });
      const waiting = await startSessionService({ CACHE_DIR: cache });
      const own = new SessionsOf(waiting, waiting);
      try {
        const environment_id = await own.createEnvironment({ setup_script: 'true' });
        const id = await own.create('echo hi', { environment_id, timeout: 4 });
        const stream = own.stream(id);
        const session = async () => (await own.http.get(`/sessions/${id}`)).body;
        const told = 'Preparing the base system: waiting for it to be made';
        await eventually(async () => (await session())['progress'] === told, 'the progress');
        await delay(6_000);
        expect(await session()).toMatchObject({ status: 'running', progress: told });
        await own.http.post(`/sessions/${id}/terminate`);
        await stream.end();
        expect(stream.comments).toContain(told);
        expect(stream.last).toMatchObject({ type: 'terminated' });
        expect((await session())['progress']).toBeNull();
      } finally {
        await leaveNothing(waiting, [own]);
        await waiting.stop();
        if (other.pid !== undefined) process.kill(-other.pid);
        await rm(cache, { recursive: true, force: true });
      }
    },
  );

  it('fail with the last words of a setup script, redacted', async () => {
    const environment_id = await sessions.createEnvironment({
      env_vars: { SECRET: 'planted-in-env' },
      setup_script: 'echo "cannot use $SECRET" >&2; exit 9',
    });
    const stream = await sessions.run('echo never', { environment_id });
    expect(stream.stages()).toEqual([
      ...both('create_sprite', 'env_file'),
      'provision_setup started',
      'provision_setup failed',
    ]);
    const { message = '', duration_ms } =
      stream.events.find(({ state }) => state === 'failed') ?? {};
    expect(message).toContain('cannot use [redacted]');
    expect(message).toContain('9');
    expect(Number.isInteger(duration_ms)).toBe(true);
    expect(stream.last).toMatchObject({
      type: 'error',
      message: expect.stringContaining('cannot use [redacted]'),
    });
    const id = stream.events[0]?.session_id ?? '';
    expect(await sessions.get(id)).toMatchObject({ status: 'failed', exit_code: null });
  });

  it.each([
    ['a message', 600],
    ['what is kept of the output', 12_000],
  ])('show no part of a secret that is longer than %s', async (_what, length) => {
    const secret = Array.from({ length: length / 5 }, (_, index) => `k${index + 1000}`).join('');
    const environment_id = await sessions.createEnvironment({
      env_vars: { SECRET: secret },
      setup_script: 'set -x; : "$SECRET"; exit 9',
    });
    const stream = await sessions.run('echo never', { environment_id });
    const failed = stream.events.find(({ state }) => state === 'failed');
    expect(failed?.message).toMatch(/\[redacted\]|exit code 9/);
    const shown = [failed?.message, stream.last.message, service.logs()].join();
    expect(shown).not.toMatch(/(k\d{4}){2}/);
  });

  // An ordinary user cannot mount what sessions would share: there each session installs its own, in the time of its turn.
  testWith(
    ['root', 'mount namespaces'],
    'end with the time of builds when a setup script hangs',
    async () => {
      const limited = await startSessionService({ BUILD_TIMEOUT: '12' });
      const own = new SessionsOf(limited, limited);
      try {
        const environment_id = await own.createEnvironment({
          setup_script: "trap '' TERM; sleep 600 & wait; sleep 600",
        });
        const stream = await own.run('echo never', { environment_id });
        expect(stream.stages().at(-1)).toBe('provision_setup failed');
        const failed = stream.events.find(({ state }) => state === 'failed');
        expect(failed?.message).toContain('12 seconds');
        expect(stream.last).toMatchObject({
          type: 'error',
          message: expect.stringContaining('12 seconds'),
        });
      } finally {
        await leaveNothing(limited, [own]);
        await limited.stop();
      }
    },
  );

  testWith(
    ['root', 'mount namespaces'],
    'are built once for all sessions of an environment, and not in the time of their turns',
    async () => {
      const environment_id = await sessions.createEnvironment({
        setup_script: 'sleep 25; echo $RANDOM$RANDOM > /opt/number; echo made > ~/made',
      });
      const doing = 'Building the environment: setup script';
      const run = () => sessions.run('cat /opt/number ~/made', { environment_id, timeout: 20 });
      const first = await run();
      expect(first.last).toMatchObject({ type: 'exit', code: 0 });
      expect(first.comments).toContain(doing);
      const second = await run();
      expect(second.output()).toBe(first.output());
      expect(second.output()).toMatch(/^\d+\nmade\n$/);
    },
  );

  it('install packages of the system', async () => {
    const environment_id = await sessions.createEnvironment({ packages: ['jq'] });
    const id = await sessions.create(`echo '{"a":1}' | jq .a`, { environment_id });
    const stream = await sessions.stream(id).end(250_000);
    expect(stream.output()).toBe('1\n');
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
  }, 300_000);

  it('say which package there is not', async () => {
    const environment_id = await sessions.createEnvironment({ packages: ['no-such-package-here'] });
    const id = await sessions.create('true', { environment_id });
    const stream = await sessions.stream(id).end(250_000);
    const { message = '' } = stream.events.find(({ state }) => state === 'failed') ?? {};
    expect(message).toMatch(/no-such-package-here/);
    expect(message).toMatch(/installing apt packages/);
  }, 300_000);
});
