import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { TestUser } from '../support/service.js';
import { type LoggedService, startLoggedService } from '../support/statement-log.js';

const FEW = 3;
const MANY = 300;

let service: LoggedService;
beforeAll(async () => {
  service = await startLoggedService();
});
afterAll(() => service.stop());

const agent = { name: 'listed', provider: 'shell', model: 'shell/bash' };

const BODIES: Record<string, (user: TestUser) => Promise<object>> = {
  '/agents': async () => agent,
  '/environments': async () => ({ packages: ['jq'], env_vars: { A: '1' } }),
  '/sessions': async ({ http }) => ({
    agent_id: (await http.post('/agents', agent)).body.id,
    prompt: 'true',
  }),
};

/** Creates a user with that many agents, environments or sessions. */
async function userWith(path: string, count: number): Promise<TestUser> {
  const user = await service.createUser({ sessionLimit: count });
  const body = await BODIES[path]?.(user);
  for (let made = 0; made < count; made += 1) {
    const { status } = await user.http.post(path, body);
    expect([201, 202]).toContain(status);
  }
  return user;
}

/** The statements that a list request sends: the fewest of several tries, because the service sends others meanwhile. */
async function statementsFor(path: string, count: number): Promise<string[]> {
  const { http } = await userWith(path, count);
  const tries: string[][] = [];
  for (let turn = 0; turn < 5; turn += 1) {
    const before = service.statements.length;
    const { body } = await http.get(path);
    tries.push(service.statements.slice(before));
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
