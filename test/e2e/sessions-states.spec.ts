import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Client } from 'pg';
import { onDocker, onSprites } from '../support/driver.js';
import type { Answer } from '../support/http-client.js';
import { untilBlocked } from '../support/locks.js';
import { query, type Service } from '../support/service.js';
import {
  eventually,
  leaveNothing,
  NO_USAGE,
  SessionsOf,
  startSessionService,
} from '../support/sessions.js';

const NOWHERE = '00000000-0000-4000-8000-000000000000';
const MICROSECONDS = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$/;
const SLEEP = 'echo up; sleep 600';

let service: Service;
let sessions: SessionsOf;
beforeAll(async () => {
  // One place in the worker: whatever else is created while it is taken stays pending.
  service = await startSessionService({ WORKER_CONCURRENCY: '1' });
  sessions = new SessionsOf(service, service);
});
afterAll(async () => {
  await leaveNothing(service, [sessions]);
  await service.stop();
});

const prompt = (id: string, body: object = { prompt: 'true' }) =>
  sessions.http.post(`/sessions/${id}/prompt`, body);
const terminate = (id: string) => sessions.http.post(`/sessions/${id}/terminate`);
const remove = (id: string) => sessions.http.delete(`/sessions/${id}/delete`);
const said = ({ status, body }: Answer) => [status, body.detail];

/** Takes the worker's only place. */
async function running(): Promise<string> {
  const id = await sessions.create(SLEEP);
  await sessions
    .stream(id)
    .until(({ events }) => events.some(({ type }) => type === 'output'))
    .then((s) => s.abort());
  return id;
}

describe('the state table', () => {
  it('pending', async () => {
    const blocker = await running();
    const id = await sessions.create('echo never');
    expect(await sessions.get(id)).toMatchObject({
      status: 'pending',
      turn_count: 1,
      current_turn: 1,
    });
    expect(said(await prompt(id))).toEqual([409, 'Session already has a pending turn']);
    expect(said(await remove(id))).toEqual([409, 'Cannot delete an active session']);
    const stream = sessions.stream(id);
    await stream.until(({ events }) => events.length === 1);
    expect(said(await terminate(id))).toEqual([200, expect.any(String)]);
    await stream.end();
    expect(stream.events.map(({ type }) => type)).toEqual(['start', 'terminated']);
    expect(stream.last).toEqual({ type: 'terminated', id: 0, message: expect.any(String) });
    expect(await sessions.turns(id)).toEqual([
      expect.objectContaining({ status: 'terminated', started_at: null, exit_code: null }),
    ]);
    await terminate(blocker);
    await eventually(() => sessions.completed('true'), 'the next turn');
    expect((await sessions.get(id)).status).toBe('terminated');
  });

  it('pending, and says what it waits for', async () => {
    const blocker = await running();
    const [first, second] = [await sessions.create('true'), await sessions.create('true')];
    const waits = (place: number) =>
      `Waiting for a free slot (1 of 1 in use): number ${place} in the queue`;
    expect((await sessions.get(first)).progress).toBe(waits(1));
    expect((await sessions.get(second)).progress).toBe(waits(2));
    const stream = sessions.stream(second);
    await stream.until(({ comments }) => comments.includes(waits(2)));
    await terminate(first);
    await stream.until(({ comments }) => comments.includes(waits(1)));
    expect((await sessions.get(second)).progress).toBe(waits(1));
    await terminate(blocker);
    await stream.end();
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
    expect((await sessions.get(second)).progress).toBeNull();
  });

  it('pending, where no worker is running', async () => {
    const idle = await startSessionService({ APP_ROLE: 'api' });
    try {
      const own = new SessionsOf(idle, idle);
      const id = await own.create('true');
      expect((await own.get(id)).progress).toBe('Waiting for a worker: none is running');
      const stream = own.stream(id);
      await stream.until(({ comments }) =>
        comments.includes('Waiting for a worker: none is running'),
      );
      await stream.abort();
    } finally {
      await idle.stop();
    }
  });

  it('running', async () => {
    const id = await running();
    expect(said(await prompt(id))).toEqual([409, 'Session is already running']);
    expect(said(await remove(id))).toEqual([409, 'Cannot delete an active session']);
    const stream = sessions.stream(id);
    await stream.until(({ events }) => events.some(({ type }) => type === 'output'));
    expect((await terminate(id)).status).toBe(200);
    await stream.end();
    expect(stream.last.type).toBe('terminated');
    expect((await sessions.stream(id).end()).frames).toEqual(stream.frames);
    expect(await sessions.turns(id)).toEqual([
      expect.objectContaining({
        status: 'terminated',
        exit_code: null,
        started_at: expect.stringMatching(MICROSECONDS),
        ended_at: expect.stringMatching(MICROSECONDS),
      }),
    ]);
  });

  it('completed, by terminate to terminated', async () => {
    const id = await sessions.completed();
    expect(await sessions.get(id)).toMatchObject({
      status: 'completed',
      exit_code: 0,
      error: null,
    });
    expect((await terminate(id)).status).toBe(200);
    expect(said(await terminate(id))).toEqual([409, 'Session is already terminated']);
    expect(said(await prompt(id))).toEqual([409, 'Session has been terminated']);
    expect((await sessions.turns(id))[0]).toMatchObject({ status: 'completed', exit_code: 0 });
    expect((await sessions.stream(id).end()).last.type).toBe('terminated');
    expect((await remove(id)).status).toBe(200);
  });

  it('failed', async () => {
    const stream = await sessions.run('echo bad >&2; exit 3');
    expect(stream.last).toMatchObject({ type: 'exit', code: 3 });
    const id = stream.events[0]?.session_id ?? '';
    expect(await sessions.reach(id, 'failed')).toMatchObject({ exit_code: 3, error: null });
    expect(said(await prompt(id))).toEqual([
      409,
      'Session has failed and cannot be resumed. Start a new session.',
    ]);
    expect(said(await terminate(id))).toEqual([409, 'Session has already failed']);
    expect(said(await remove(id))).toEqual([200, expect.any(String)]);
  });

  it('deleted is gone, everywhere', async () => {
    const id = await sessions.completed();
    expect(said(await remove(id))).toEqual([200, expect.any(String)]);
    for (const answer of [
      await sessions.http.get(`/sessions/${id}`),
      await sessions.http.get(`/sessions/${id}/turns`),
      await sessions.http.get(`/sessions/${id}/stream`),
      await prompt(id),
      await terminate(id),
      await remove(id),
    ]) {
      expect(said(answer)).toEqual([404, 'Session not found']);
    }
    const left = await query(
      service.databaseUrl,
      `SELECT 1 FROM turns WHERE session_id = $1 UNION ALL SELECT 1 FROM event_log WHERE session_id = $1`,
      [id],
    );
    expect(left).toEqual([]);
  });

  it('is nobody else’s', async () => {
    const id = await sessions.completed();
    const stranger = new SessionsOf(service, await service.createUser());
    for (const path of ['', '/turns', '/stream']) {
      expect((await stranger.http.get(`/sessions/${id}${path}`)).status).toBe(404);
    }
    expect((await stranger.http.post(`/sessions/${id}/prompt`, { prompt: 'x' })).status).toBe(404);
    expect((await stranger.http.post(`/sessions/${id}/terminate`)).status).toBe(404);
    expect((await stranger.http.delete(`/sessions/${id}/delete`)).status).toBe(404);
    expect((await stranger.http.get('/sessions')).body.data).toEqual([]);
    expect((await sessions.get(id)).status).toBe('completed');
  });

  it('of prompts that arrive together, one is taken', async () => {
    const id = await sessions.completed();
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => prompt(id, { prompt: 'echo two' })),
    );
    expect(answers.filter(({ status }) => status === 202)).toHaveLength(1);
    const refused = answers.filter(({ status }) => status !== 202).map(said);
    for (const [status, detail] of refused) {
      expect(status).toBe(409);
      expect(
        [
          'Session already has a pending turn',
          'Session is already running',
          'Session backend is no longer available; start a new session.',
        ].indexOf(String(detail)),
      ).toBeLessThan(2);
    }
    expect((await sessions.stream(id).end()).output()).toBe('done\ntwo\n');
    expect(await sessions.turns(id)).toHaveLength(2);
  });

  it('stays terminated, whatever was in flight', async () => {
    for (const wait of [0, 40, 80, 120, 160, 200, 250, 300]) {
      const id = await sessions.create('for i in $(seq 50); do echo $i; done');
      await new Promise((resolve) => setTimeout(resolve, wait));
      const { status } = await terminate(id);
      expect(status).toBe(200);
      const stream = await sessions.stream(id).end();
      expect(stream.last.type).toBe('terminated');
      expect((await sessions.stream(id).end()).frames).toEqual(stream.frames);
      await eventually(
        async () =>
          (await query(service.databaseUrl, 'SELECT 1 FROM sandboxes WHERE session_id = $1', [id]))
            .length === 0,
        'its sandbox to go',
      );
      expect((await sessions.get(id)).status).toBe('terminated');
      expect((await sessions.stream(id).end()).frames).toEqual(stream.frames);
    }
  });

  it('a sandbox that is gone makes a prompt a conflict', async () => {
    const id = await sessions.completed();
    await query(
      service.databaseUrl,
      `UPDATE sandboxes SET state = 'deleting' WHERE session_id = $1`,
      [id],
    );
    expect(said(await prompt(id))).toEqual([
      409,
      'Session backend is no longer available; start a new session.',
    ]);
    expect((await sessions.get(id)).status).toBe('completed');
  });
});

describe('creating', () => {
  it('answers with id, status and where to read, and pins versions', async () => {
    const environment = await sessions.createEnvironment({});
    const agent = await sessions.createAgent({ environment_id: environment });
    const { status, body, headers } = await sessions.post('echo hi', { agent_id: agent });
    expect(status).toBe(202);
    expect(headers.location).toBe(`/sessions/${body.id}`);
    expect(body).toEqual({
      id: body.id,
      status: 'pending',
      stream_url: `/sessions/${body.id}/stream`,
    });
    await sessions.stream(body.id).end();
    expect(await sessions.reach(body.id, 'completed')).toEqual({
      type: 'session',
      id: body.id,
      status: 'completed',
      agent_id: agent,
      agent_version: 1,
      environment_id: environment,
      environment_version: 1,
      provider: 'shell',
      timeout: 3600,
      resources: [],
      turn_count: 1,
      current_turn: 1,
      stream_url: `/sessions/${body.id}/stream`,
      exit_code: 0,
      error: null,
      progress: null,
      budget: null,
      usage: { ...NO_USAGE, active_seconds: expect.any(Number) },
      created_at: expect.stringMatching(MICROSECONDS),
      updated_at: expect.stringMatching(MICROSECONDS),
    });
    expect(await sessions.turns(body.id)).toEqual([
      {
        id: expect.any(String),
        session_id: body.id,
        turn_number: 1,
        prompt: 'echo hi',
        timeout: 3600,
        status: 'completed',
        exit_code: 0,
        error: null,
        created_at: expect.stringMatching(MICROSECONDS),
        started_at: expect.stringMatching(MICROSECONDS),
        ended_at: expect.stringMatching(MICROSECONDS),
        usage: { ...NO_USAGE, active_seconds: expect.any(Number) },
      },
    ]);
    const list = (await sessions.http.get('/sessions')).body.data;
    expect(list[0]?.id).toBe(body.id);
    expect(list.map(({ created_at }) => created_at)).toEqual(
      list
        .map(({ created_at }) => created_at)
        .toSorted()
        .toReversed(),
    );
  });

  it('checks in order, and a refusal leaves nothing behind', async () => {
    const before = (await sessions.http.get('/sessions')).body.data.length;
    const archivedAgent = await sessions.createAgent({ system: 'x' });
    await sessions.http.post(`/agents/${archivedAgent}/archive`);
    const archivedEnvironment = await sessions.createEnvironment({});
    await sessions.http.post(`/environments/${archivedEnvironment}/archive`);
    const agent = await sessions.createAgent();
    // A provider that was taken away since the agent was made answers like one whose key is missing.
    const keyless = await sessions.createAgent();
    await query(service.databaseUrl, `UPDATE agents SET provider = 'openai' WHERE id = $1`, [
      keyless,
    ]);
    const post = (body: unknown) => sessions.http.post('/sessions', body);

    expect(
      (
        await service.http.send('POST', '/sessions', undefined, {
          raw: '{',
          headers: { authorization: 'x' },
        })
      ).status,
    ).toBe(401);
    expect((await service.http.send('POST', '/sessions', undefined, { raw: '{' })).status).toBe(
      400,
    );
    const missing = await post({ environment_id: NOWHERE });
    expect(missing.status).toBe(422);
    expect(missing.body.detail).toEqual([
      expect.objectContaining({ type: 'missing', loc: ['body', 'agent_id'] }),
    ]);
    for (const [timeout, type] of [
      [0, 'greater_than_equal'],
      [-1, 'greater_than_equal'],
      [86_401, 'less_than_equal'],
      [1.5, 'int_type'],
      ['60', 'int_type'],
      [null, 'int_type'],
    ]) {
      const answer = await post({ agent_id: NOWHERE, prompt: 'x', timeout });
      expect([timeout, answer.status, answer.body.detail]).toEqual([
        timeout,
        422,
        [{ type, loc: ['body', 'timeout'], msg: expect.any(String) }],
      ]);
    }
    expect((await post({ agent_id: agent, prompt: 7 })).status).toBe(422);
    expect(said(await post({ agent_id: NOWHERE, prompt: 'x', environment_id: NOWHERE }))).toEqual([
      404,
      'Agent not found',
    ]);
    expect(said(await post({ agent_id: 'no-uuid', prompt: 'x' }))).toEqual([
      404,
      'Agent not found',
    ]);
    expect(said(await post({ agent_id: agent, prompt: 'x', environment_id: 'no-uuid' }))).toEqual([
      404,
      'Environment not found',
    ]);
    expect(said(await post({ agent_id: archivedAgent, environment_id: NOWHERE }))).toEqual([
      409,
      'Cannot create session with archived agent',
    ]);
    expect(said(await post({ agent_id: agent, prompt: 'x', environment_id: NOWHERE }))).toEqual([
      404,
      'Environment not found',
    ]);
    expect(
      said(await post({ agent_id: keyless, prompt: 'x', environment_id: archivedEnvironment })),
    ).toEqual([409, 'Cannot create session with archived environment']);
    const noKey = await post({ agent_id: keyless, prompt: 'x' });
    expect([noKey.status, typeof noKey.body.detail]).toEqual([400, 'string']);
    const noPrompt = await post({ agent_id: agent });
    expect([noPrompt.status, typeof noPrompt.body.detail]).toEqual([422, 'string']);
    const stranger = new SessionsOf(service, await service.createUser());
    expect((await stranger.post('x', { agent_id: agent })).status).toBe(404);

    expect((await sessions.http.get('/sessions')).body.data).toHaveLength(before);
  });

  it.each([
    ['agent', 'archived', `UPDATE agents SET archived_at = now() WHERE id = $1`, 409],
    ['environment', 'archived', `UPDATE environments SET archived_at = now() WHERE id = $1`, 409],
    ['environment', 'deleted', `DELETE FROM environments WHERE id = $1`, 404],
  ])('is refused when the %s is %s meanwhile', async (what, _how, change, status) => {
    const environment_id = await sessions.createEnvironment({});
    const agent_id = await sessions.createAgent();
    const other = new Client({ connectionString: service.databaseUrl });
    await other.connect();
    try {
      await other.query('BEGIN');
      await other.query(change, [what === 'agent' ? agent_id : environment_id]);
      const answer = sessions.post('true', { agent_id, environment_id });
      await untilBlocked(service.databaseUrl);
      await other.query('COMMIT');
      expect(said(await answer)).toEqual([
        status,
        status === 404 ? 'Environment not found' : `Cannot create session with archived ${what}`,
      ]);
    } finally {
      await other.end();
    }
  });

  it('takes ids in any case, and answers with them as they are', async () => {
    const environment_id = await sessions.createEnvironment({});
    const agent_id = await sessions.createAgent();
    const { status, body } = await sessions.http.post('/sessions', {
      agent_id: agent_id.toUpperCase(),
      environment_id: environment_id.toUpperCase(),
      prompt: 'true',
    });
    expect(status).toBe(202);
    const upper = body.id.toUpperCase();
    await sessions.stream(upper).end();
    expect(await sessions.reach(upper, 'completed')).toMatchObject({
      id: body.id,
      agent_id,
      environment_id,
    });
    const prompted = await sessions.http.post(`/sessions/${upper}/prompt`, {
      prompt: 'true',
      timeout: 77,
    });
    expect([prompted.status, prompted.body]).toEqual([202, body]);
    expect(prompted.headers.location).toBe(`/sessions/${body.id}`);
    const events = (await sessions.stream(upper).end()).events;
    expect(events[0]).toMatchObject({ type: 'start', session_id: body.id });
    // Each turn has its own time.
    expect((await sessions.turns(upper)).map(({ timeout }) => timeout)).toEqual([3600, 77]);
    expect(said(await sessions.http.post(`/sessions/${upper}/terminate`))[0]).toBe(200);
    expect(said(await sessions.http.delete(`/sessions/${upper}/delete`))[0]).toBe(200);
    expect((await sessions.http.get(`/sessions/${body.id}`)).status).toBe(404);
  });

  it('takes the timeouts at the bounds', async () => {
    for (const timeout of [1, 86_400]) {
      const id = await sessions.create('true', { timeout });
      expect((await sessions.get(id)).timeout).toBe(timeout);
      await sessions.stream(id).end();
    }
  });

  it('needs no prompt where the agent has a system prompt, which only the first turn gets', async () => {
    const agent = await sessions.createAgent({ system: 'echo system' });
    const alone = await sessions.run(undefined, { agent_id: agent });
    expect(alone.output()).toBe('system\n');
    const id = await sessions.create('echo first', { agent_id: agent });
    await sessions.stream(id).end();
    await sessions.prompt(id, 'echo second');
    expect((await sessions.stream(id).end()).output()).toBe('system\nfirst\nsecond\n');
    expect((await sessions.turns(id)).map((turn) => turn['prompt'])).toEqual([
      'echo first',
      'echo second',
    ]);
  });

  it('stays at the versions that it was created with, in later turns too', async () => {
    const environment = await sessions.createEnvironment({ env_vars: { COLOUR: 'red' } });
    const agent = await sessions.createAgent({ system: 'echo one', environment_id: environment });
    const blocker = await running();
    const id = await sessions.create('echo $COLOUR', { agent_id: agent });
    await sessions.http.put(`/environments/${environment}`, {
      version: 1,
      env_vars: { COLOUR: 'blue' },
    });
    await sessions.http.put(`/agents/${agent}`, {
      version: 1,
      system: 'echo two',
      environment_id: null,
    });
    await terminate(blocker);
    expect((await sessions.stream(id).end()).output()).toBe('one\nred\n');
    await sessions.prompt(id, 'echo still $COLOUR');
    expect((await sessions.stream(id).end()).output()).toBe('one\nred\nstill red\n');
    expect(await sessions.get(id)).toMatchObject({
      agent_version: 1,
      environment_version: 1,
      turn_count: 2,
    });
  });

  it('takes the agent’s environment, another one, or none', async () => {
    const [own, other] = [
      await sessions.createEnvironment({ env_vars: { WHICH: 'own' } }),
      await sessions.createEnvironment({ env_vars: { WHICH: 'other' } }),
    ];
    const agent_id = await sessions.createAgent({ environment_id: own });
    const which = async (members: object) =>
      (await sessions.run('echo ${WHICH-none}', { agent_id, ...members })).output().trim();
    expect(await which({})).toBe('own');
    expect(await which({ environment_id: other })).toBe('other');
    expect(await which({ environment_id: null })).toBe('none');
    await sessions.clear();
    for (const id of [own, other]) {
      expect(said(await sessions.http.delete(`/environments/${id}/delete`))).toEqual([
        409,
        'Cannot delete environment with existing sessions',
      ]);
    }
  });
});

describe('timeouts', () => {
  it('end a turn with an error', async () => {
    // It counts from before the sandbox is made, which takes containers and machines a while.
    const timeout = onDocker() || onSprites() ? 8 : 3;
    const stream = await sessions.run("trap '' TERM; echo up; sleep 600", { timeout });
    expect(stream.output()).toBe('up\n');
    expect(stream.last).toMatchObject({
      type: 'error',
      message: expect.stringContaining(`${timeout} second`),
    });
    const id = stream.events[0]?.session_id ?? '';
    expect(await sessions.get(id)).toMatchObject({
      status: 'failed',
      exit_code: null,
      error: stream.last.message,
    });
    expect(await sessions.turns(id)).toEqual([
      expect.objectContaining({ status: 'failed', exit_code: null }),
    ]);
  });

  it('are a turn’s own', async () => {
    const id = await sessions.completed();
    expect((await prompt(id, { prompt: 'x', timeout: 0 })).status).toBe(422);
    await sessions.prompt(id, 'sleep 600', { timeout: 1 });
    expect((await sessions.stream(id).end()).last).toMatchObject({ type: 'error' });
  });
});
