import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type Service, startService, type TestUser } from '../support/service.js';
import { StatementLog } from '../support/statement-log.js';
import { createTestDatabase, type TestDatabase } from '../support/test-database.js';

const FEW = 3;
const MANY = 300;

let database: TestDatabase;
let log: StatementLog;
let service: Service;
beforeAll(async () => {
  database = await createTestDatabase();
  log = await StatementLog.start(database.url);
  // Without a worker nothing but requests asks the database for anything but now and then.
  service = await startService({
    databaseUrl: log.url,
    env: { APP_ROLE: 'api' },
  });
});
afterAll(async () => {
  await service.stop();
  await log.close();
  await database.drop();
});

const agent = { name: 'listed', provider: 'shell', model: 'shell/bash' };

const BODIES: Record<string, (user: TestUser) => Promise<object>> = {
  '/agents': async () => agent,
  '/environments': async () => ({ packages: ['jq'], env_vars: { A: '1' } }),
  '/sessions': async ({ http }) => ({
    agent_id: (await http.post('/agents', agent)).body.id,
    prompt: 'true',
  }),
};

/** A user with so many of them. */
async function userWith(path: string, count: number): Promise<TestUser> {
  const user = await service.createUser({ sessionLimit: count });
  const body = await BODIES[path]?.(user);
  for (let made = 0; made < count; made += 1) {
    const { status } = await user.http.post(path, body);
    expect([201, 202]).toContain(status);
  }
  return user;
}

/** What the list costs the database: of some tries the cheapest, since others may ask it something at the same time. */
async function statementsFor(path: string, count: number): Promise<string[]> {
  const { http } = await userWith(path, count);
  const tries: string[][] = [];
  for (let turn = 0; turn < 5; turn += 1) {
    const before = log.statements.length;
    const { body } = await http.get(path);
    tries.push(log.statements.slice(before));
    expect(body.data).toHaveLength(count);
  }
  return tries.toSorted((a, b) => a.length - b.length)[0] ?? [];
}

describe('lists', () => {
  it.each(Object.keys(BODIES))(
    'of %s take as many statements for many as for few',
    async (path) => {
      const few = await statementsFor(path, FEW);
      expect(few.length).toBeGreaterThan(0);
      expect(await statementsFor(path, MANY)).toEqual(few);
    },
  );
});
