import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { onDocker, onSprites } from '../support/driver.js';
import { leftOf } from '../support/sandbox-remains.js';
import { query, type Service } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';

let service: Service;
const users: SessionsOf[] = [];
beforeAll(async () => {
  service = await startSessionService({ SESSION_LIMIT: undefined });
});
// Of one test nothing is there in the next.
afterEach(() => leaveNothing(service, users.splice(0)));
afterAll(() => service.stop());

async function newUser(sessionLimit?: number): Promise<SessionsOf> {
  const user = new SessionsOf(service, await service.createUser({ sessionLimit }));
  users.push(user);
  return user;
}

describe('the concurrent limit', () => {
  it('lets exactly ten of forty in', async () => {
    const user = await newUser();
    const agent_id = await user.createAgent();
    const answers = await Promise.all(
      Array.from({ length: 40 }, () => user.post('sleep 600', { agent_id })),
    );
    expect(answers.filter(({ status }) => status === 202)).toHaveLength(10);
    for (const { status, body, headers } of answers.filter((answer) => answer.status !== 202)) {
      expect(status).toBe(429);
      expect(Number(headers['retry-after'])).toBeGreaterThan(0);
      expect(body).toEqual({ detail: expect.any(String), limit: 10, active: 10 });
      expect(body.detail).toMatch(/limit reached.*terminate an active session/i);
    }
    const all = (await user.http.get('/sessions')).body.data;
    expect(all).toHaveLength(10);

    await user.http.post(`/sessions/${all[0]?.id}/terminate`);
    const again = await Promise.all([user.post('sleep 600'), user.post('sleep 600')]);
    expect(again.map(({ status }) => status).toSorted((x, y) => x - y)).toEqual([202, 429]);
    await user.clear();
  });

  it('is a user’s own, and guards prompts too', async () => {
    const user = await newUser(2);
    const other = await newUser(0);
    expect((await other.post('true')).body).toMatchObject({ limit: 0, active: 0 });
    const [a, b] = [await user.completed(), await user.completed()];
    const blockers = [await user.create('sleep 600'), await user.create('sleep 600')];
    const refused = await user.http.post(`/sessions/${a}/prompt`, { prompt: 'true' });
    expect([refused.status, refused.body]).toEqual([
      429,
      { detail: expect.any(String), limit: 2, active: 2 },
    ]);
    expect(await user.get(a)).toMatchObject({ status: 'completed', turn_count: 1 });
    await user.http.post(`/sessions/${blockers[0]}/terminate`);
    const both = await Promise.all(
      [a, b].map((id) => user.http.post(`/sessions/${id}/prompt`, { prompt: 'sleep 600' })),
    );
    expect(both.map(({ status }) => status).toSorted((x, y) => x - y)).toEqual([202, 429]);
    // The one that was refused still has its sandbox.
    await user.http.post(`/sessions/${blockers[1]}/terminate`);
    const rest = both[0]?.status === 202 ? b : a;
    await user.prompt(rest, 'echo again');
    expect((await user.stream(rest).end()).output()).toBe('done\nagain\n');
  });
});

/** An engine and a machine take most of a second of a processor for each, to begin and to end. */
const BURST_USERS = onSprites() ? 1 : onDocker() ? 2 : 20;

describe('a burst', () => {
  it(`of ${BURST_USERS * 10} sessions of ${BURST_USERS} users ends whole, and leaves nothing`, async () => {
    const burst = await Promise.all(Array.from({ length: BURST_USERS }, () => newUser()));
    const runs = await Promise.all(
      burst.map(async (user, index) => {
        const agent_id = await user.createAgent();
        return Promise.all(
          Array.from({ length: 10 }, async (_, number) => {
            const id = await user.create(`echo ${index}-${number} > f; cat f`, { agent_id });
            const stream = await user.stream(id).end(280_000);
            return { stream, expected: `${index}-${number}\n` };
          }),
        );
      }),
    );
    for (const { stream, expected } of runs.flat()) {
      expect(stream.output()).toBe(expected);
      expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
    }
    await Promise.all(burst.map((user) => user.clear()));
    await eventually(
      async () => (await query(service.databaseUrl, 'SELECT 1 FROM sandboxes')).length === 0,
      'all sandboxes to be destroyed',
    );
    let left: string[] = [];
    await eventually(
      async () => (left = await leftOf(service)).length === 0,
      () => `nothing to be left:\n${left.join('\n')}`,
    );
  }, 600_000);
});
