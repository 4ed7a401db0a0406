import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { dumpOf, watchProcesses } from '../support/leaks.js';
import type { Service } from '../support/service.js';
import { leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';

const PLANTED = {
  variable: 'planted-variable-0123456789',
  header: 'Bearer planted-header-0123456789',
  credential: 'planted-header-0123456789',
  toolVariable: 'planted-tool-variable-0123456789',
  repositoryToken: 'planted-repository-token-0123456789',
  apiKey: 'planted-api-key-0123456789',
};

let service: Service;
let sessions: SessionsOf;
beforeAll(async () => {
  service = await startSessionService({ LOG_LEVEL: 'verbose', ANTHROPIC_API_KEY: PLANTED.apiKey });
  sessions = new SessionsOf(service, service);
});
afterAll(async () => {
  await leaveNothing(service, [sessions]);
  await service.stop();
});

it('planted secrets are in no table, log, answer, stream or argument', async () => {
  const watch = watchProcesses();
  const environment_id = await sessions.createEnvironment({ env_vars: { KEY: PLANTED.variable } });
  const agent_id = await sessions.createAgent({
    mcp_servers: [
      {
        type: 'http',
        name: 'remote',
        url: 'https://mcp.example.com',
        headers: { Authorization: PLANTED.header },
      },
      { type: 'stdio', name: 'own', command: 'x', env: { KEY: PLANTED.toolVariable } },
    ],
  });
  const members = {
    agent_id,
    environment_id,
    resources: [
      {
        type: 'git_repository',
        url: 'http://repository.invalid/a.git',
        authorization_token: PLANTED.repositoryToken,
      },
    ],
  };
  const failed = await sessions.run('true', members);
  expect(failed.last.type).toBe('error');
  const id = await sessions.create(
    'env; cat ~/.mcp.json ~/.session/env; sed "s/Bearer //" ~/.mcp.json; sleep 0.2; echo "$KEY" >&2',
    {
      agent_id,
      environment_id,
    },
  );
  const stream = await sessions.stream(id).end();
  expect(stream.output()).toContain('KEY=[redacted]');
  const processes = await watch.stop();
  expect(processes).toContain('bash');

  const paths = [
    '/agents',
    `/agents/${agent_id}/versions`,
    '/environments',
    `/environments/${environment_id}/versions`,
    '/sessions',
    `/sessions/${id}/turns`,
  ];
  const answers = await Promise.all(paths.map((path) => sessions.http.get(path)));
  expect(answers.map(({ status }) => status)).toEqual(paths.map(() => 200));
  const places = {
    answers: answers.map(({ text }) => text).join('\n'),
    streams: [...failed.frames, ...stream.frames].join('\n'),
    database: await dumpOf(service.databaseUrl),
    logs: service.logs(),
    processes,
  };
  expect(places.database).toContain('https://mcp.example.com');
  for (const [place, text] of Object.entries(places)) {
    for (const [name, secret] of Object.entries({ ...PLANTED, accessToken: service.token })) {
      for (const form of [
        secret,
        Buffer.from(secret).toString('base64'),
        Buffer.from(secret).toString('hex'),
      ]) {
        expect([place, name, text.includes(form)]).toEqual([place, name, false]);
      }
    }
  }
});
