import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { describeWith } from '../support/requirements.js';
import type { Service } from '../support/service.js';
import {
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
    const stream = await sessions.run('echo hi');
    const stages = stream.events.filter(({ type }) => type === 'stage');
    for (const stage of stages.filter(({ state }) => state === 'done')) {
      expect(Number.isInteger(stage.duration_ms)).toBe(true);
      expect(stage.duration_ms).toBeLessThan(30_000);
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

  it('are not repeated by a second turn, which finds its files', async () => {
    const id = await sessions.create(
      'echo work > file; echo home > ~/file; mkdir d; echo tmp > /tmp/file',
    );
    await sessions.stream(id).end();
    await sessions.prompt(id, 'cat file ~/file; ls -d d; cat /tmp/file');
    const stream = await sessions.stream(id).end();
    expect(stream.stages()).toEqual([
      ...both('create_sprite', 'env_file', 'provision_setup'),
      'runtime_start started',
      'runtime_start started',
    ]);
    expect(stream.output('stdout')).toBe('work\nhome\nd\n');
    expect(stream.last).toMatchObject({ type: 'exit', code: 1 });
  });
});

describeWith(['sandboxes with software'], 'environments with software', () => {
  beforeAll(() => prepareSoftware(), ROOTFS_TIMEOUT_MS);

  it('run the setup script with the variables, as root of the sandbox, once', async () => {
    const environment_id = await sessions.createEnvironment({
      env_vars: { COLOUR: 'red' },
      setup_script: 'echo "$COLOUR $(id -u)" >> /opt/setup; echo noise; pwd > ~/where',
    });
    const id = await sessions.create('cat /opt/setup ~/where; id -u', { environment_id });
    await sessions.stream(id).end();
    await sessions.prompt(id, 'cat /opt/setup');
    expect((await sessions.stream(id).end()).output()).toBe('red 0\n/workspace\n1000\nred 0\n');
  }, 120_000);

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
  }, 120_000);

  it('end with the turn’s time when a setup script hangs', async () => {
    const environment_id = await sessions.createEnvironment({
      setup_script: "trap '' TERM; sleep 600 & wait; sleep 600",
    });
    const stream = await sessions.run('echo never', { environment_id, timeout: 6 });
    expect(stream.stages().at(-1)).toBe('provision_setup failed');
    expect(stream.events.find(({ state }) => state === 'failed')?.message).toContain('6 seconds');
    expect(stream.last).toMatchObject({
      type: 'error',
      message: expect.stringContaining('6 seconds'),
    });
  }, 120_000);

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
