import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { runCli } from '../support/cli.js';
import { describeWith } from '../support/requirements.js';
import { query, type Service, startService } from '../support/service.js';
import { eventually } from '../support/sessions.js';

let service: Service;
const cli = (...args: string[]) =>
  runCli(args, { DATABASE_URL: service.databaseUrl, DATA_DIR: service.dataDir });

describeWith(['bubblewrap'], 'sessions on the command line', () => {
  beforeAll(async () => {
    service = await startService();
  });
  afterAll(() => service.stop());

  it('lists and terminates the sessions of every user', async () => {
    const agent = { name: 'a', provider: 'shell', model: 'shell/bash' };
    const { id: agentId } = (await service.http.post('/agents', agent)).body as { id: string };
    const session = await service.http.post('/sessions', { agent_id: agentId, prompt: 'sleep 60' });
    const { id } = session.body as { id: string };

    const listed = await cli('sessions', 'list', '--json');
    expect(listed.json).toEqual({
      sessions: [expect.objectContaining({ id, provider: 'shell', turns: 1, error: null })],
    });
    expect((await cli('sessions', 'list', '--status', 'failed', '--json')).json).toEqual({
      sessions: [],
    });
    expect((await cli('sessions', 'list')).stdout).toContain(id);
    const count = async (...filter: string[]) =>
      ((await cli('sessions', 'list', ...filter, '--json')).json.sessions as object[]).length;
    const counts = await Promise.all([
      count('--provider', 'shell', '--agent', agentId, '--newer-than', '1h'),
      count('--provider', 'anthropic'),
      count('--agent', id),
      count('--newer-than', '1ms'),
    ]);
    expect(counts).toEqual([1, 0, 0, 0]);
    // A name that does not exist is an error, not an empty list.
    for (const [filter, code, complaint] of [
      [['--user', 'nobody'], 3, 'There is no user "nobody"'],
      [['--provider', 'nonsense'], 2, 'there is no provider "nonsense": use anthropic, '],
    ] as const) {
      const refused = await cli('sessions', 'list', ...filter);
      expect(refused).toMatchObject({ code, stderr: expect.stringContaining(complaint) });
    }

    const shown = await cli('sessions', 'show', id, '--json');
    expect(shown.json).toMatchObject({
      id,
      agent_id: agentId,
      agent_version: 1,
      turns: [{ turn: 1, exit_code: null }],
    });
    const text = (await cli('sessions', 'show', id)).stdout;
    expect(text).toMatch(new RegExp(`^session +${id}$`, 'm'));
    expect(shown.stdout + text).not.toContain('sleep 60');

    expect(await cli('sessions', 'terminate', id)).toMatchObject({ code: 0, stderr: '' });
    expect((await service.http.get(`/sessions/${id}`)).body).toMatchObject({
      status: 'terminated',
    });
    expect(await cli('sessions', 'terminate', id)).toMatchObject({
      code: 4,
      stderr: 'error: Session is already terminated\n',
    });
    expect((await cli('sessions', 'terminate', 'nonsense')).code).toBe(3);
  });

  it('names sandboxes that nobody needs, and destroys them when it is not only asked', async () => {
    const sandbox = '6d3f1a52-94c1-4c43-8f0e-5f3c5f0f7a11';
    const reap = async (...options: string[]) =>
      (await cli('sandboxes', 'reap', ...options, '--json')).json.sandboxes;
    const host = (await readFile(join(service.dataDir, 'host-id'), 'utf8')).trim();
    // At rest, on record, and not there; the service itself compares once a minute only.
    await query(
      service.databaseUrl,
      `INSERT INTO sandboxes (session_id, driver, host, state) VALUES ($1, 'local', $2, 'idle')`,
      [sandbox, host],
    );
    const listed = (await cli('sandboxes', 'list', '--state', 'idle', '--json')).json.sandboxes;
    expect(listed).toEqual([
      expect.objectContaining({ id: sandbox, state: 'idle', session: null, driver: 'local', host }),
    ]);
    expect((await cli('sandboxes', 'list')).stdout).toMatch(
      new RegExp(`^SANDBOX +STATE[^]*${sandbox} +idle +\\d{4}-`),
    );
    expect(await reap('--dry-run')).toEqual([
      { id: sandbox, reason: 'gone, on record', result: 'would be destroyed' },
    ]);
    const records = () => query(service.databaseUrl, 'SELECT FROM sandboxes');
    expect(await records()).toHaveLength(1);
    expect(await reap()).toEqual([
      { id: sandbox, reason: 'gone, on record', result: expect.stringMatching(/destroyed|left/) },
    ]);
    await eventually(async () => (await records()).length === 0, 'the record to be gone');
    expect((await cli('sandboxes', 'reap')).stdout).toBe('Nothing to reap\n');
  });

  it('drops the days of the log that are past retention, and no others', async () => {
    const days = async () =>
      (
        await query<{ name: string }>(
          service.databaseUrl,
          `SELECT relname AS name FROM pg_class WHERE relname ~ '^event_log_2\\d+$' AND relkind = 'r'`,
        )
      ).map(({ name }) => name);
    const kept = await days();
    await query(service.databaseUrl, 'CREATE TABLE event_log_20200101 (LIKE event_log)');
    await query(
      service.databaseUrl,
      `ALTER TABLE event_log ATTACH PARTITION event_log_20200101
       FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')`,
    );
    expect((await cli('logs', 'purge', '--json')).json).toEqual({
      dropped: ['event_log_20200101'],
    });
    expect((await days()).sort()).toEqual(kept.sort());
    expect((await cli('logs', 'purge')).stdout).toBe('Nothing to purge\n');
  });
});
