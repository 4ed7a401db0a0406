import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, jest } from '@jest/globals';
import { lockDataDir } from '../../../src/database/embedded/data-dir.js';
import { runCli } from '../../support/cli.js';
import { describeWith, testWith } from '../../support/requirements.js';
import {
  installationOf,
  query,
  type Service,
  type ServiceOptions,
  startService,
} from '../../support/service.js';
import { SessionsOf } from '../../support/sessions.js';
import { createTestDatabase, type TestDatabase } from '../../support/test-database.js';

/** Starting a service several times takes long on a busy machine. */
jest.setTimeout(300_000);

let dataDir: string;
let first: TestDatabase;
let second: TestDatabase;
const running: Service[] = [];

const idFile = () => join(dataDir, 'installation');
const idInFolder = () => readFileSync(idFile(), 'utf8').trim();

async function start(databaseUrl: string, options: ServiceOptions = {}): Promise<Service> {
  const service = await startService({ databaseUrl, dataDir, ...options });
  running.push(service);
  return service;
}

async function stop(service: Service): Promise<void> {
  running.splice(running.indexOf(service), 1);
  await service.stop();
}

/** What a service says that does not start; it has to be one line. */
async function refusal(databaseUrl: string, env: Record<string, string> = {}): Promise<string> {
  const error = await start(databaseUrl, { env }).then(
    () => new Error('it started'),
    (reason: Error) => reason,
  );
  const [head, ...said] = error.message.trim().split('\n');
  expect(head).toBe('The service ended with 1 before it listened:');
  expect(said).toHaveLength(1);
  return said.join();
}

/** A copy of a database, as a backup that was restored, or a clone for tests. */
async function copyOf(original: TestDatabase): Promise<TestDatabase> {
  const copy = await createTestDatabase();
  const [to, from] = [copy, original].map(({ url }) => new URL(url).pathname.slice(1));
  const server = process.env.TEST_POSTGRES_URL ?? '';
  await query(server, `DROP DATABASE ${to}`);
  await query(server, `CREATE DATABASE ${to} TEMPLATE ${from}`);
  return copy;
}

const cli = (databaseUrl: string, ...args: string[]) =>
  runCli(args, { DATABASE_URL: databaseUrl, DATA_DIR: dataDir });

beforeEach(async () => {
  dataDir = mkdtempSync(join(tmpdir(), 'installation-'));
  [first, second] = await Promise.all([createTestDatabase(), createTestDatabase()]);
});
afterEach(async () => {
  for (const service of [...running]) await stop(service);
  await Promise.all([first.drop(), second.drop()]);
  rmSync(dataDir, { recursive: true, force: true });
});

describe('a data folder and a database', () => {
  test('that are new become one installation, which others of the database join', async () => {
    const service = await start(first.url);
    const id = await installationOf(first.url);
    expect(id).toMatch(/^[0-9a-f]{12}$/);
    expect(idInFolder()).toBe(id);
    // On the same folder, and with a folder of its own, as on another host.
    await stop(await start(first.url));
    const elsewhere = mkdtempSync(join(tmpdir(), 'installation-'));
    await stop(await start(first.url, { dataDir: elsewhere }));
    expect(readFileSync(join(elsewhere, 'installation'), 'utf8').trim()).toBe(id);
    rmSync(elsewhere, { recursive: true });
    expect(await installationOf(second.url)).not.toBe(id);
    await stop(service);
  });

  test('of two installations stop the start, beside a running service and without one', async () => {
    const service = await start(first.url);
    const [mine, other] = [await installationOf(first.url), await installationOf(second.url)];
    const line =
      `agent-session-service: DATA_DIR ${dataDir} belongs to installation ${mine} and the database is installation ` +
      `${other}: set DATABASE_URL to the database of ${mine} or DATA_DIR to another folder, or run \`agent-sessions ` +
      'installation adopt` to give up the sandboxes in the folder';
    expect(await refusal(second.url)).toBe(line);
    for (const APP_ROLE of ['api', 'worker'])
      expect(await refusal(second.url, { APP_ROLE })).toBe(line);
    // A command that would destroy sandboxes is held to the same; others work.
    expect(await cli(second.url, 'sandboxes', 'reap')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`belongs to installation ${mine}`) as unknown,
    });
    expect(await cli(first.url, 'sandboxes', 'reap')).toMatchObject({ code: 0 });
    expect(await cli(first.url, 'user', 'list')).toMatchObject({ code: 0 });
    expect(await cli(second.url, 'installation', 'show')).toMatchObject({ code: 7 });
    await stop(service);
    expect(await refusal(second.url)).toBe(line);
    await stop(await start(first.url));
  });

  test('stay what they are when DATABASE_URL is forgotten', async () => {
    await stop(await start(first.url));
    const line = await refusal('');
    expect(line).toContain(
      `DATA_DIR ${dataDir} belongs to installation ${await installationOf(first.url)}, whose database is not in it`,
    );
    expect(existsSync(join(dataDir, 'postgres'))).toBe(false);
  });

  test('are held by a lock that kill -9 leaves nothing of', async () => {
    const service = await start(first.url);
    await expect(lockDataDir(dataDir)).rejects.toThrow(
      `DATA_DIR ${dataDir} is in use by another running service (pid ${service.pid})`,
    );
    expect(await refusal('')).toContain('whose database is not in it');
    await (await lockDataDir(dataDir, 'shared')).release();
    await service.kill9();
    const lock = await lockDataDir(dataDir);
    expect(await refusal(first.url)).toContain(`is in use by another running service`);
    await lock.release();
    await stop(service);
    await stop(await start(first.url));
  });

  test('are joined on purpose, while no service runs on the folder', async () => {
    const service = await start(first.url);
    expect(await cli(second.url, 'installation', 'adopt')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('in use by another running service') as unknown,
    });
    await stop(service);
    expect(await cli(second.url, 'installation', 'adopt')).toMatchObject({ code: 0 });
    expect(idInFolder()).toBe(await installationOf(second.url));
    await stop(await start(second.url));
    expect(await refusal(first.url)).toContain('belongs to installation');
  });

  test('from before there were ids are adopted, if they know each other', async () => {
    const service = await start(first.url);
    const host = readFileSync(join(dataDir, 'host-id'), 'utf8').trim();
    await stop(service);
    for (const { url } of [first, second]) await query(url, 'DELETE FROM installation');
    rmSync(idFile());
    mkdirSync(join(dataDir, 'sandboxes', randomUUID()), { recursive: true });

    expect(await refusal(second.url)).toMatch(
      /DATA_DIR .* holds sandboxes that the database \(installation .*\) does not know/,
    );
    expect(existsSync(idFile())).toBe(false);
    expect(await query(first.url, 'SELECT host FROM workers')).toEqual([{ host }]);
    await stop(await start(first.url));
    expect(idInFolder()).toBe(await installationOf(first.url));
    // What its objects on engines were labelled with before: users tell that it was in use.
    expect(
      await query(
        first.url,
        `SELECT left(encode(sha256(convert_to(origin, 'UTF8')), 'hex'), 12) = id AS former FROM installation`,
      ),
    ).toEqual([{ former: true }]);
  });
});

describe('a copy of a database', () => {
  let copy: TestDatabase;
  beforeEach(async () => {
    await stop(await start(first.url));
    copy = await copyOf(first);
  });
  afterEach(() => copy.drop());

  test('is refused until somebody says what it is', async () => {
    const line = await refusal(copy.url);
    expect(line).toMatch(
      /: The database is a copy: installation [0-9a-f]{12} was made in \d+\/\d+/,
    );
    const elsewhere = mkdtempSync(join(tmpdir(), 'installation-'));
    await expect(startService({ databaseUrl: copy.url, dataDir: elsewhere })).rejects.toThrow(
      'The database is a copy',
    );
    rmSync(elsewhere, { recursive: true });
  });

  test('takes the place of the original', async () => {
    const id = await installationOf(first.url);
    expect(await cli(copy.url, 'installation', 'adopt')).toMatchObject({ code: 0 });
    await stop(await start(copy.url));
    expect([await installationOf(copy.url), idInFolder()]).toEqual([id, id]);
  });

  test('becomes an installation of its own, without the sessions that go on in the original', async () => {
    rmSync(dataDir, { recursive: true });
    mkdirSync(dataDir);
    const { code, json } = await cli(copy.url, 'installation', 'renew', '--json');
    expect(code).toBe(0);
    expect(json).toMatchObject({ id: idInFolder(), former_id: await installationOf(first.url) });
    expect(json['id']).not.toBe(json['former_id']);
    await stop(await start(copy.url));
  });
});

describeWith(['bubblewrap'], 'a service with another database', () => {
  test('does not touch the sandboxes of the one that owns the folder', async () => {
    const service = await start(first.url);
    const sessions = new SessionsOf(service, service);
    const id = await sessions.create('echo up; sleep 4; echo done');
    await sessions.stream(id).until((stream) => stream.output() === 'up\n');
    await refusal(second.url, { ORPHAN_GRACE: '1s' });
    await refusal('', { ORPHAN_GRACE: '1s' });
    const stream = await sessions.stream(id).end();
    expect(stream.output()).toBe('up\ndone\n');
    await sessions.clear();
  });
});

testWith(['an ordinary user'], 'an ordinary user has no rights that the folder needs', async () => {
  writeFileSync(join(dataDir, 'note'), '');
  await stop(await start(first.url));
});
