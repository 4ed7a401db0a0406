import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { describeWith } from '../support/requirements.js';
import { query, type Service, type TestUser } from '../support/service.js';
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
let other: SessionsOf;

/** As the API shows it. */
interface Build {
  status: string;
  started_at: string;
  error: string | null;
}

const begunBuild = (of: TestUser, id: string): Promise<Build> =>
  eventually(async () => {
    const { body } = await of.http.get(`/environments/${id}`);
    return (body.build as Build | null) ?? undefined;
  }, `the build of ${id}`);
const endedBuild = (of: TestUser, id: string): Promise<Build> =>
  eventually(
    async () => {
      const build = await begunBuild(of, id);
      return build.status === 'building' ? undefined : build;
    },
    `the end of the build of ${id}`,
    60_000,
  );

describeWith(['sandboxes with software'], 'with BUILD_ON_SAVE, an environment', () => {
  let user: TestUser;
  let neighbour: TestUser;

  beforeAll(prepareSoftware, ROOTFS_TIMEOUT_MS);
  beforeAll(async () => {
    service = await startSessionService({ BUILD_ON_SAVE: 'on' });
    user = service;
    neighbour = await service.createUser();
    sessions = new SessionsOf(service, user);
    other = new SessionsOf(service, neighbour);
  }, 60_000);
  afterAll(async () => {
    await leaveNothing(service, [sessions, other]);
    await service.stop();
  }, 60_000);

  it('is built when it is created and when it is changed, and its sessions get the result', async () => {
    const setup_script = 'cat /proc/sys/kernel/random/uuid >~/made';
    const id = await sessions.createEnvironment({ setup_script });
    const first = await endedBuild(user, id);
    expect(first).toMatchObject({ status: 'ready', error: null });
    const made = async () =>
      (await sessions.run('cat ~/made', { environment_id: id })).output('stdout');
    const one = await made();
    expect(one).toMatch(/^[0-9a-f-]{36}\n$/);
    expect(await made()).toBe(one);
    // No session has built it again.
    expect(await begunBuild(user, id)).toEqual(first);

    const change = { version: 1, setup_script: 'echo changed >~/made' };
    expect((await user.http.put(`/environments/${id}`, change)).status).toBe(200);
    const second = await endedBuild(user, id);
    expect(second.started_at > first.started_at).toBe(true);
    expect(await made()).toBe('changed\n');
    expect(await begunBuild(user, id)).toEqual(second);
  }, 90_000);

  it('shows what failed, without secrets, and leaves no sandbox', async () => {
    const id = await sessions.createEnvironment({
      env_vars: { API_TOKEN: 'a-secret-that-is-printed' },
      setup_script: 'echo "no such thing: $API_TOKEN" >&2; cat /nothing/here',
    });
    const { status, error } = await endedBuild(user, id);
    expect([status, error]).toEqual([
      'failed',
      expect.stringContaining('failed command: cat /nothing/here'),
    ]);
    expect(error).toContain('no such thing: ');
    expect(error).not.toContain('a-secret');
    await eventually(async () => {
      const left = await query(
        service.databaseUrl,
        `SELECT 1 FROM sandboxes WHERE session_id NOT IN (SELECT id FROM sessions)`,
      );
      return left.length === 0 || undefined;
    }, 'the sandbox of the build to be gone');
  }, 60_000);

  it('without packages and script is not built', async () => {
    const id = await sessions.createEnvironment({ setup_script: ' \n', env_vars: { A: '1' } });
    const after = await sessions.createEnvironment({ setup_script: 'true' });
    await endedBuild(user, after);
    expect((await user.http.get(`/environments/${id}`)).body.build).toBeNull();
  }, 60_000);

  it('of one user does not wait for all those of another', async () => {
    const many = [];
    for (let number = 0; number < 3; number += 1) {
      many.push(await sessions.createEnvironment({ setup_script: `sleep 2; echo ${number}` }));
    }
    await Promise.any(many.map((id) => begunBuild(user, id)));
    const theirs = await other.createEnvironment({ setup_script: 'sleep 2; echo theirs' });
    const [mine, neighbours] = await Promise.all([
      Promise.all(many.map((id) => endedBuild(user, id))),
      endedBuild(neighbour, theirs),
    ]);
    const earlier = mine.filter(({ started_at }) => started_at < neighbours.started_at);
    expect(earlier.length).toBeLessThan(many.length);
  }, 90_000);
});
