import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { type LoggedService, startLoggedService } from '../support/statement-log.js';

const KIB = 1024;
const AGENT = { name: 'a', provider: 'shell', model: 'shell/bash' };
const LARGE = 'x'.repeat(200 * KIB);

let service: LoggedService;
beforeAll(async () => {
  service = await startLoggedService({ STORED_BYTES_PER_USER: '128KiB' });
});
afterAll(() => service.stop());

it('what cannot fit into what the user may store is refused before it is sent to the database', async () => {
  const { http } = await service.createUser();
  const agent = (await http.post('/agents', AGENT)).body;
  const environment = (await http.post('/environments', { name: 'e' })).body;
  service.statements.length = 0;
  const variables = Object.fromEntries(
    Array.from({ length: 4 }, (_none, index) => [`A${index}`, 'x'.repeat(50 * KIB)]),
  );
  for (const answer of [
    await http.post('/agents', { ...AGENT, system: LARGE }),
    await http.post('/agents', { ...AGENT, skills: [{ name: 's', content: LARGE }] }),
    await http.put(`/agents/${agent.id}`, { version: 1, system: LARGE }),
    await http.post('/environments', { setup_script: LARGE }),
    await http.post('/environments', { env_vars: variables }),
    await http.put(`/environments/${environment.id}`, { version: 1, setup_script: LARGE }),
  ]) {
    expect([answer.status, answer.body.detail]).toEqual([
      422,
      expect.stringMatching(/^The limit of stored text is reached: /),
    ]);
  }
  const writing = service.statements.filter((text) =>
    /\b(INSERT INTO|UPDATE) "?(agents|environments|agent_versions|environment_versions)\b/.test(
      text,
    ),
  );
  expect(writing).toEqual([]);
});
