import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { describeWith } from '../support/requirements.js';
import { query, type Service } from '../support/service.js';
import {
  eventually,
  leaveNothing,
  prepareSoftware,
  ROOTFS_TIMEOUT_MS,
  SessionsOf,
  startSessionService,
} from '../support/sessions.js';

let first: Service;
let service: Service;
let sessions: SessionsOf;

/** As the API shows it. */
interface Build {
  status: string;
  started_at: string;
  duration_ms: number | null;
  error: string | null;
}

const buildOf = async (id: string): Promise<Build | null> => {
  const { body } = await service.http.get(`/environments/${id}`);
  return body.build as Build | null;
};
const runIn = (environment_id: string) => sessions.run('cat ~/made', { environment_id });

describeWith(['sandboxes with software'], 'the last build of an environment', () => {
  beforeAll(prepareSoftware, ROOTFS_TIMEOUT_MS);
  beforeAll(async () => {
    first = service = await startSessionService();
    sessions = new SessionsOf(service, service);
  });
  afterAll(async () => {
    await leaveNothing(service, [sessions]);
    await service.stop();
    if (first !== service) await first.stop();
  });

  it('is shown while it goes on and when it has ended, for each version', async () => {
    const id = await sessions.createEnvironment({ setup_script: 'sleep 2; echo 1 >~/made' });
    expect(await buildOf(id)).toBeNull();
    const running = runIn(id);
    const build = await eventually(async () => (await buildOf(id)) ?? undefined, 'a build');
    expect(build).toEqual({
      status: 'building',
      started_at: expect.any(String) as unknown,
      duration_ms: null,
      error: null,
    });
    expect((await running).output('stdout')).toBe('1\n');
    const ready = await buildOf(id);
    expect(ready).toEqual({
      ...build,
      status: 'ready',
      duration_ms: expect.any(Number) as unknown,
    });
    expect(ready?.duration_ms).toBeGreaterThanOrEqual(2000);
    // The next session takes over the result.
    expect((await runIn(id)).output('stdout')).toBe('1\n');
    expect(await buildOf(id)).toEqual(ready);

    const change = { version: 1, setup_script: 'echo 2 >~/made' };
    expect((await service.http.put(`/environments/${id}`, change)).status).toBe(200);
    expect(await buildOf(id)).toBeNull();
    expect((await runIn(id)).output('stdout')).toBe('2\n');
    expect(await buildOf(id)).toMatchObject({ status: 'ready', error: null });
  });

  it('says what failed, without secrets, and is tried again by the next session', async () => {
    const env_vars = { API_TOKEN: 'a-secret-that-is-printed' };
    const setup_script = 'echo "no such thing: $API_TOKEN" >&2; cat /nothing/here';
    const id = await sessions.createEnvironment({ env_vars, setup_script });
    for (let tries = 0; tries < 2; tries += 1) {
      expect((await runIn(id)).last.type).toBe('error');
      const { status, error, duration_ms } = (await buildOf(id)) ?? {};
      expect([status, typeof duration_ms]).toEqual(['failed', 'number']);
      expect(error).toContain('failed command: cat /nothing/here');
      expect(error).toContain('no such thing: ');
      expect(error).not.toContain('a-secret');
    }
  });

  it('goes on after the service was killed in the middle, and is forgotten if nobody goes on', async () => {
    const id = await sessions.createEnvironment({ setup_script: 'sleep 3; echo 3 >~/made' });
    const session = await sessions.create('cat ~/made', { environment_id: id });
    const begun = await eventually(async () => (await buildOf(id)) ?? undefined, 'a build');
    const { databaseUrl, dataDir, url, token, http } = service;
    await service.kill9();
    const again = await startSessionService({ PORT: new URL(url).port }, { databaseUrl, dataDir });
    service = { ...again, token, http };
    expect((await sessions.stream(session).end()).output('stdout')).toBe('3\n');
    const { status, started_at } = (await buildOf(id)) ?? {};
    expect([status, started_at]).toEqual(['ready', begun.started_at]);

    await query(
      databaseUrl,
      `UPDATE environment_builds SET status = 'building', seen_at = now() - interval '2 minutes'
        WHERE environment_id = $1`,
      [id],
    );
    expect(await buildOf(id)).toBeNull();
  });
});
