import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { runCli } from '../support/cli.js';
import { describeWith } from '../support/requirements.js';
import { query, type Service, startService } from '../support/service.js';

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

    expect(await cli('sessions', 'terminate', id)).toMatchObject({ code: 0, stderr: '' });
    expect((await service.http.get(`/sessions/${id}`)).body).toMatchObject({
      status: 'terminated',
    });
    expect(await cli('sessions', 'terminate', id)).toMatchObject({
      code: 1,
      stderr: 'error: Session is already terminated\n',
    });
    expect((await cli('sessions', 'terminate', 'nonsense')).code).toBe(1);
    expect((await cli('sessions', 'list', '--status', 'nonsense')).code).toBe(2);
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
