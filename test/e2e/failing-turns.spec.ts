import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'pg';
import type { EventStreamClient } from '../support/event-stream-client.js';
import { type DomainError, RefusingDatabase } from '../support/refusing-database.js';
import { query, type Service, type TestUser } from '../support/service.js';
import {
  eventually,
  leaveNothing,
  prepareSoftware,
  ROOTFS_TIMEOUT_MS,
  SessionsOf,
  startSessionService,
} from '../support/sessions.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

/** While this is refused, and it passes, the worker claims nothing. */
const NO_CLAIMS: DomainError = { statement: 'turns-claim', code: '57014' };
const LINES_SCRIPT = 'i=0; while [ ! -e stop ]; do i=$((i+1)); echo "line $i"; sleep 0.1; done';
const COUNT_SCRIPT = 'for i in {1..30}; do echo "line $i"; sleep 0.1; done';

let database: TestDatabase;
let proxy: RefusingDatabase;
let service: Service;
let attacker: SessionsOf;
let victim: SessionsOf;
let victimUser: TestUser;
let agentId: string;

beforeAll(async () => {
  database = await createTestDatabase();
  proxy = await RefusingDatabase.start(database.url);
  service = await startSessionService(
    { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789', TURN_CLAIM_LIMIT: '3' },
    { databaseUrl: proxy.url },
  );
  attacker = new SessionsOf(service, service);
  victimUser = await service.createUser();
  victim = new SessionsOf(service, victimUser);
  agentId = await attacker.createAgent();
});
afterEach(() => {
  proxy.refusals = [];
  proxy.refused.clear();
});
afterAll(async () => {
  await leaveNothing(service, [attacker, victim]);
  await service.stop();
  await proxy.close();
  await database.drop();
});

/** A session of another user that prints lines for as long as the work takes, and must not miss a beat. */
async function besideVictim(work: () => Promise<void>): Promise<void> {
  const id = await victim.create(LINES_SCRIPT);
  const stream = victim.stream(id);
  await eventually(() => stream.output().includes('line 3\n'), 'the victim to print');
  await work();
  const before = linesOf(stream).length;
  await eventually(() => linesOf(stream).length >= before + 5, 'the victim to print on');
  const lines = linesOf(stream);
  expect(lines).toEqual(lines.map((_line, at) => `line ${at + 1}`));
  await victim.http.post(`/sessions/${id}/terminate`);
  expect((await stream.end()).last.type).toBe('terminated');
  // The worker goes on with what comes next, of both users.
  for (const sessions of [victim, attacker]) {
    expect((await sessions.run('echo well')).last).toMatchObject({ type: 'exit', code: 0 });
  }
}

const linesOf = (stream: EventStreamClient): string[] =>
  stream
    .output()
    .split('\n')
    .filter((line) => line !== '');

/** Creates a session that is not claimed before the refusals are set, which may be about its ids. */
async function refusedSession(
  refusalsFor: (ids: string[]) => DomainError[],
  seconds = 5,
): Promise<string> {
  proxy.refusals = [NO_CLAIMS];
  const prompt = `echo hello; sleep ${seconds}; echo bye`;
  const id = await attacker.create(prompt, { agent_id: agentId });
  const [turn] = await query<{ id: string }>(
    database.url,
    'SELECT id FROM turns WHERE session_id = $1',
    [id],
  );
  proxy.refusals = refusalsFor([id, turn?.id ?? '']);
  return id;
}

describe('output that the database would refuse', () => {
  beforeAll(prepareSoftware, ROOTFS_TIMEOUT_MS);

  test.each([
    ['NUL', String.raw`a\u0000b`, 'a\u{FFFD}b'],
    ['half a surrogate pair', String.raw`a\ud83d`, 'a\u{FFFD}'],
    ['a pair where the message is cut', `${'x'.repeat(499)}\\ud83d\\ude00y`, 'x'.repeat(499)],
  ])(
    'such as %s in a result becomes a message, and stops nobody',
    async (_name, result, message) => {
      const line = `{"type":"result","is_error":true,"result":"${result}"}`;
      const environment_id = await attacker.createEnvironment({
        setup_script: [
          'mkdir -p ~/.local/bin',
          `printf '%s\\n' '#!/bin/sh' 'cat <<"END"' '${line}' END 'sleep 1' > ~/.local/bin/claude`,
          'chmod +x ~/.local/bin/claude',
        ].join('\n'),
      });
      const agent_id = await attacker.createAgent({ provider: 'anthropic', model: 'claude-x' });
      await besideVictim(async () => {
        const id = await attacker.create('hi', { agent_id, environment_id });
        const stream = await attacker.stream(id).end();
        expect(stream.output('stdout')).toContain(line);
        expect(stream.last).toMatchObject({ type: 'exit', code: 1 });
        expect((await attacker.get(id)).error).toBe(message);
      });
    },
  );
});

describe('a statement that the database refuses for one turn', () => {
  const PLAN = 'The turn could not be prepared';
  const OUTPUT = 'The output of the turn could not be stored';
  const LEASE = 'The lease of the turn could not be renewed';
  const END = 'The end of the turn could not be stored';

  test.each([
    ['sessions-plan', PLAN],
    ['agent_versions', PLAN],
    ['turns-commit-output', OUTPUT],
    ['turns-renew', LEASE],
    ['turns-end', END],
    ['sessions-end-turn', END],
    ['sandboxes-rest', END],
  ])('%s fails that turn with a message, and no other', async (statement, message) => {
    await besideVictim(async () => {
      const id = await refusedSession((ids) => [{ statement, about: [...ids, agentId] }]);
      const { last } = await attacker.stream(id).end();
      expect(last).toMatchObject({ type: 'error', message: `${message} (database error 22P05)` });
      expect(await attacker.get(id)).toMatchObject({ status: 'failed', error: last.message });
      expect(proxy.refused.get(statement)).toBeGreaterThan(0);
    });
  });

  const printOn = async (refusal: (about: string[]) => DomainError[]): Promise<string> => {
    const id = await refusedSession(refusal);
    await eventually(() => attacker.get(id).then(({ status }) => status === 'running'), 'a claim');
    return id;
  };
  const endsWell = async (id: string): Promise<void> => {
    expect((await attacker.stream(id).end()).last).toMatchObject({ type: 'exit', code: 0 });
  };

  test('turns-held harms nobody', async () => {
    await besideVictim(async () => {
      const id = await refusedSession((about) => [{ statement: 'turns-held', about }], 12);
      await attacker.reach(id, 'running');
      expect((await victim.run('echo meanwhile')).last).toMatchObject({ type: 'exit', code: 0 });
      expect((await attacker.get(id)).status).toBe('running');
      expect(proxy.refused.get('turns-held')).toBeGreaterThan(0);
      await endsWell(id);
    });
  });

  test('turns-uncount-claim harms nobody', async () => {
    await besideVictim(async () => {
      const statement = 'turns-uncount-claim';
      const id = await printOn((about) => [
        { statement, about },
        { statement: 'turns-renew', code: '57014' },
      ]);
      // The lease is not renewed for a while; then another worker claims the turn.
      await eventually(() => (proxy.refused.get('turns-renew') ?? 0) > 0, 'a renewal');
      await query(database.url, `UPDATE turns SET lease_owner = 'other' WHERE session_id = $1`, [
        id,
      ]);
      await eventually(() => (proxy.refused.get(statement) ?? 0) > 0, 'the turn to be lost');
      proxy.refusals = [];
      await endsWell(id);
    });
  });

  const leaseOf = async (session?: string) =>
    (
      await query<{ id: string; owner: string | null }>(
        database.url,
        'SELECT id, lease_owner AS owner FROM turns WHERE session_id = $1',
        [session],
      )
    )[0];

  test.each(['turns-leased', 'turns-release'])(
    '%s of a worker that stops harms nobody',
    async (statement) => {
      const others = await RefusingDatabase.start(database.url);
      await besideVictim(async () => {
        proxy.refusals = [NO_CLAIMS];
        const other = await startSessionService(
          {},
          { databaseUrl: others.url, dataDir: service.dataDir },
        );
        const ids: string[] = [];
        try {
          for (let turn = 0; turn < 2; turn += 1) {
            ids.push(await attacker.create('echo hello; sleep 4; echo bye', { agent_id: agentId }));
          }
          for (const id of ids) await attacker.reach(id, 'running');
          const turn = await leaseOf(ids[0]);
          const about = [statement === 'turns-leased' ? turn?.owner : turn?.id].map(String);
          others.refusals = [{ statement, about }];
        } finally {
          await other.stop();
        }
        expect(others.refused.get(statement)).toBeGreaterThan(0);
        const handedOver = (await leaseOf(ids[1]))?.owner === null;
        expect(handedOver).toBe(statement === 'turns-release');
        proxy.refusals = [];
        for (const id of ids) await endsWell(id);
      });
      await others.close();
    },
  );

  test('the look whether a repeated commit was applied fails that turn, and no other', async () => {
    await besideVictim(async () => {
      const id = await refusedSession((about) => [
        { statement: 'turns-commit-applied', about },
        { statement: 'turns-commit-output', about, code: '57014' },
      ]);
      const { last } = await attacker.stream(id).end();
      expect(last).toMatchObject({ type: 'error', message: `${OUTPUT} (database error 22P05)` });
    });
  });

  test('a row that cannot be claimed at all fails in the end, and others are claimed', async () => {
    // Any claim of it, whatever the statement, but not its end.
    await query(
      database.url,
      `CREATE FUNCTION refuse_claim() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN RAISE EXCEPTION 'not this one'; END $$`,
    );
    await query(
      database.url,
      `CREATE TRIGGER refuse_claim BEFORE UPDATE ON turns FOR EACH ROW
       WHEN (NEW.prompt LIKE '%unclaimable%' AND NEW.status = 'running')
       EXECUTE FUNCTION refuse_claim()`,
    );
    await besideVictim(async () => {
      const id = await attacker.create('echo unclaimable');
      expect((await victim.run('echo meanwhile')).last).toMatchObject({ type: 'exit', code: 0 });
      const { last } = await attacker.stream(id).end();
      expect(last).toMatchObject({
        type: 'error',
        message: 'The turn could not be started (database error P0001)',
      });
    });
  });
});

describe('a fault of the whole database', () => {
  test.each([
    ['a day without a partition', [{ statement: 'turns-commit-output', code: '23514' }]],
    [
      'missing rights and tables, and damaged pages',
      [
        // The name as a whole: which turns there are to claim can be asked.
        { statement: 'turns-claim\n', code: 'XX001' },
        { statement: 'turns-renew', code: '42703' },
        { statement: 'turns-commit-output', code: '42501' },
      ],
    ],
    [
      'a schema that is not the right one',
      [
        { statement: 'turns-end', code: '42P01' },
        { statement: 'sessions-plan', code: '42P01' },
      ],
    ],
  ])('such as %s fails no turn, and loses nothing', async (_what, refusals: DomainError[]) => {
    const ids = [await attacker.create(COUNT_SCRIPT), await victim.create(COUNT_SCRIPT)];
    const streams = [attacker.stream(ids[0] ?? ''), victim.stream(ids[1] ?? '')];
    for (const stream of streams) await eventually(() => stream.output() !== '', 'output');
    proxy.refusals = refusals;
    const last = await attacker.create('echo last');
    // Long enough for three claims, if each of them counted.
    await delay(12_000);
    for (const { statement } of refusals) {
      expect(proxy.refused.get(statement)).toBeGreaterThan(0);
    }
    proxy.refusals = [];
    for (const stream of [...streams, attacker.stream(last)]) {
      expect((await stream.end()).last).toMatchObject({ type: 'exit', code: 0 });
    }
    const expected = Array.from({ length: 30 }, (_line, at) => `line ${at + 1}`);
    for (const stream of streams) expect(linesOf(stream)).toEqual(expected);
  });
});

describe('a turn whose row stays locked', () => {
  test('waits by itself', async () => {
    await besideVictim(async () => {
      const id = await attacker.create(COUNT_SCRIPT);
      const stream = attacker.stream(id);
      await eventually(() => stream.output() !== '', 'output');
      const other = new Client({ connectionString: database.url });
      await other.connect();
      await other.query('BEGIN');
      await other.query('SELECT FROM turns WHERE session_id = $1 FOR UPDATE', [id]);
      const before = stream.output();
      const beside = await victim.create(COUNT_SCRIPT);
      expect((await victim.stream(beside).end()).last).toMatchObject({ type: 'exit', code: 0 });
      // Lines that were in flight when the lock was taken may have arrived.
      expect(linesOf(stream).length).toBeLessThan(before.split('\n').length + 3);
      await other.query('ROLLBACK');
      await other.end();
      expect((await stream.end()).last).toMatchObject({ type: 'exit', code: 0 });
      expect(linesOf(stream)).toHaveLength(30);
    });
  });
});

describe('a turn that gets nowhere', () => {
  test('is given up after so many claims', async () => {
    const id = await refusedSession(() => [NO_CLAIMS]);
    await query(database.url, `UPDATE turns SET claims = 3 WHERE session_id = $1`, [id]);
    const bystander = await attacker.create('echo well');
    proxy.refusals = [];
    const { last } = await attacker.stream(id).end();
    expect((await attacker.stream(bystander).end()).last).toMatchObject({ type: 'exit', code: 0 });
    expect(last).toMatchObject({
      type: 'error',
      message: 'The turn was given up: 3 attempts to run it made no progress',
    });
  });
});
