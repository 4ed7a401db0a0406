import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, jest } from '@jest/globals';
import { firstUserOf } from '../../src/sandboxes/driver/local/user-pool.js';
import { runCli } from '../support/cli.js';
import { describeWith, testWith } from '../support/requirements.js';
import { query, type Service } from '../support/service.js';
import { eventually, SessionsOf, startSessionService } from '../support/sessions.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

/** Starting a service several times takes long on a busy machine. */
jest.setTimeout(300_000);

const GONE = 'Session backend is no longer available; start a new session.';

let database: TestDatabase;
let dataDir: string;
const services: Service[] = [];

async function start(env: Record<string, string> = {}): Promise<Service> {
  const service = await startSessionService(
    { SANDBOX_DRIVER: 'local', ...env },
    { databaseUrl: database.url, dataDir },
  );
  services.push(service);
  return service;
}

async function stop(service: Service): Promise<void> {
  services.splice(services.indexOf(service), 1);
  await service.stop();
}

/**
 * Waits until the reaper has noticed sandboxes without a session.
 * @returns when it said so, by its own clock. What is gone at a later time was there for at least so long, however late
 * this process looks.
 */
async function seenOrphans(service: Service): Promise<number> {
  return eventually(() => {
    const line = service
      .logs()
      .split('\n')
      .find((text) => text.includes('Sandboxes without a session'));
    return line !== undefined && Date.parse((JSON.parse(line) as { time: string }).time);
  }, 'the reaper to see them');
}

const onRecord = async (): Promise<string[]> =>
  (
    await query<{ id: string }>(
      database.url,
      `SELECT session_id AS id FROM sandboxes WHERE state <> 'deleting' ORDER BY created_at`,
    )
  ).map(({ id }) => id);

const folderOf = (id: string) => join(dataDir, 'sandboxes', id);

beforeEach(async () => {
  database = await createTestDatabase();
  dataDir = mkdtempSync(join(tmpdir(), 'room-'));
});
afterEach(async () => {
  for (const service of [...services]) await stop(service);
  await database.drop();
  rmSync(dataDir, { recursive: true, force: true });
});

describeWith(['bubblewrap'], 'a sandbox that the database does not know', () => {
  test('is destroyed once it was unknown for ORPHAN_GRACE, and not before', async () => {
    await stop(await start());
    const [orphan, found] = [randomUUID(), randomUUID()];
    for (const id of [orphan, found]) mkdirSync(folderOf(id), { recursive: true });
    const service = await start({ ORPHAN_GRACE: '10s' });
    const seenAt = await seenOrphans(service);
    // Its record is back, as when a database was restored.
    const host = await query<{ host: string }>(database.url, 'SELECT host FROM workers');
    await query(
      database.url,
      `INSERT INTO sandboxes (session_id, driver, host, state) VALUES ($1, 'local', $2, 'active')`,
      [found, host[0]?.host],
    );
    await eventually(() => !existsSync(folderOf(orphan)), 'the orphan to be destroyed');
    expect(Date.now() - seenAt).toBeGreaterThan(5_000);
    expect(existsSync(folderOf(found))).toBe(true);
  });

  test('is left alone when its turn has just gone with it, as in a database that was restored', async () => {
    const service = await start({ ORPHAN_GRACE: '8s' });
    const sessions = new SessionsOf(service, service);
    const id = await sessions.create('echo here; sleep 60');
    const stream = sessions.stream(id);
    await eventually(() => stream.output() !== '', 'the turn to run');
    await query(database.url, 'DELETE FROM sandboxes');
    await query(database.url, 'DELETE FROM sessions');
    const seenAt = await seenOrphans(service);
    await eventually(() => !existsSync(folderOf(id)), 'the orphan to be destroyed');
    expect(Date.now() - seenAt).toBeGreaterThan(4_000);
  });
});

describeWith(['bubblewrap'], 'sandboxes at rest', () => {
  test('are as many as SANDBOXES_PER_USER says, or the user; the oldest go first', async () => {
    const service = await start({ SANDBOXES_PER_USER: '2' });
    const sessions = new SessionsOf(service, service);
    const other = await service.createUser();
    const others = new SessionsOf(service, other);
    await query(database.url, 'UPDATE users SET sandboxes_per_user = 0 WHERE id = $1', [
      other.userId,
    ]);
    const ids: string[] = [];
    const kept: string[] = [];
    for (let number = 0; number < 4; number += 1) {
      ids.push(await sessions.completed('true'));
      kept.push(await others.completed('true'));
    }
    await eventually(
      async () => (await onRecord()).length === 6,
      'the sandboxes beyond the limit to go',
    );
    expect((await onRecord()).toSorted()).toEqual([...ids.slice(2), ...kept].toSorted());
    await eventually(async () => !existsSync(folderOf(ids[0] ?? '')), 'the oldest to be destroyed');
    const refused = await sessions.http.post(`/sessions/${ids[0]}/prompt`, { prompt: 'true' });
    expect(refused).toMatchObject({ status: 409, body: { detail: GONE } });
    await sessions.prompt(ids[3] ?? '', 'echo still');
    expect((await sessions.stream(ids[3] ?? '').end()).output()).toContain('still');
  });

  testWith(
    ['root'],
    'make room when the kernel users run out, of the user who has the most',
    async () => {
      const service = await start();
      const sessions = new SessionsOf(service, service);
      const other = new SessionsOf(service, await service.createUser());
      const few = await other.completed('true');
      const many = [await sessions.completed('true'), await sessions.completed('true')];
      // All but a few users are taken, by sandboxes that nobody knows: they have their grace.
      const pool = join(dataDir, 'sandboxes', '.uids');
      const first = firstUserOf(join(dataDir, 'sandboxes'));
      for (let user = 0; user < 4_095 - 40; user += 1) {
        try {
          symlinkSync(randomUUID(), join(pool, String(first + user)));
        } catch {
          // One of those that are in use.
        }
      }
      await eventually(async () => !(await onRecord()).includes(many[0] ?? ''), 'the first to go');
      await eventually(async () => (await onRecord()).length === 0, 'the others to go, too');
      const order = [...service.logs().matchAll(/The sandbox of session (\S+) makes room/g)];
      expect(order.map(([, id]) => id)).toHaveLength(3);
      expect(order[0]?.[1]).toBe(many[0]);
      expect(order.map(([, id]) => id)).toContain(few);
      // There is room for new ones all the same, and when there is none the refusal says why.
      await sessions.completed('true');
      // Its sandbox makes room as well; only then nothing is given back any more.
      await eventually(async () => (await onRecord()).length === 0, 'the last one to go');
      await eventually(
        async () => readdirSync(pool).every((name) => !name.startsWith('of-')),
        'its user to be free',
      );
      for (let user = 0; user < 4_095; user += 1) {
        try {
          symlinkSync(randomUUID(), join(pool, String(first + user)));
        } catch {
          // As above.
        }
      }
      const refused = await sessions.post('true');
      expect(refused).toMatchObject({
        status: 502,
        body: {
          detail: 'Sandbox creation failed: all 4095 places for sandboxes are taken',
        },
      });
    },
  );
});

describeWith(['bubblewrap'], 'a host below its disk watermark', () => {
  test('takes no new sessions, whoever is asked, and lets those that run go on', async () => {
    const roomy = await start();
    const sessions = new SessionsOf(roomy, roomy);
    const id = await sessions.create('echo up; sleep 6; echo done');
    await sessions.stream(id).until((stream) => stream.output() === 'up\n');
    await stop(roomy);

    // Of a worker that has just stopped nobody knows yet that it is not there.
    await query(database.url, 'DELETE FROM workers');

    const tight = { DISK_WATERMARK: '1000000GiB' };
    const worker = await start({ ...tight, APP_ROLE: 'worker' });
    const api = await start({ APP_ROLE: 'api' });
    await eventually(
      async () =>
        (await query(database.url, 'SELECT FROM workers WHERE problem IS NOT NULL')).length > 0,
      'the worker to say its problem',
    );
    const all = await start(tight);
    for (const service of [api, all]) {
      const { http } = await service.createUser();
      const refused = await new SessionsOf(service, { http, token: '' }).post('true');
      expect(refused.status).toBe(502);
      expect(refused.body.detail).toMatch(
        /^Sandbox creation failed: the host is short of disk: \d+ MiB are free, and DISK_WATERMARK is \d+ MiB$/,
      );
    }
    const stream = await new SessionsOf(api, { http: sessions.http, token: roomy.token })
      .stream(id)
      .end();
    expect(stream.output()).toBe('up\ndone\n');
    const doctor = await runCli(['doctor', '--only', 'disk'], {
      ...tight,
      DATABASE_URL: database.url,
      DATA_DIR: dataDir,
    });
    expect(doctor.stdout).toMatch(
      /fail {2}disk .*below DISK_WATERMARK .*new sessions are rejected/,
    );
    await stop(worker);
  });
});

describeWith(
  ['bubblewrap'],
  'a turn whose sandbox belongs to a driver that no worker serves',
  () => {
    test('ends with an error, and counts no more', async () => {
      const service = await start({ HOST_LOST_SECONDS: '2', SESSION_LIMIT: '1' });
      const sessions = new SessionsOf(service, service);
      const id = await sessions.completed('true');
      // As after a change from another driver: that one's sandboxes are reachable from everywhere.
      await query(database.url, `UPDATE sandboxes SET driver = 'docker', host = NULL`);
      await sessions.prompt(id, 'true');
      expect((await sessions.post('true')).status).toBe(429);
      const stream = await sessions.stream(id).end();
      expect(stream.last).toMatchObject({
        type: 'error',
        message:
          'No worker serves the sandbox of this session any more: it was made by the driver docker',
      });
      await sessions.completed('true');
    });
  },
);
