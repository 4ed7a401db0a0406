import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { type GitServer, startGitServer } from '../support/git-server.js';
import { dumpOf, watchProcesses } from '../support/leaks.js';
import { describeWith } from '../support/requirements.js';
import type { Service } from '../support/service.js';
import { leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';

const TOKEN = 'git-t0ken/with:odd@characters%20';

describeWith(['sandboxes', 'git http-backend'], 'repositories', () => {
  let git: GitServer;
  let service: Service;
  let sessions: SessionsOf;
  beforeAll(async () => {
    git = await startGitServer(TOKEN);
    // Sandboxes reach no loopback address of the host but a gateway's.
    service = await startSessionService({ OPENAI_BASE_URL: git.url });
    sessions = new SessionsOf(service, service);
  });
  afterAll(async () => {
    await leaveNothing(service, [sessions]);
    await service.stop();
    await git.stop();
  });
  const repository = (members: object = {}) => ({
    type: 'git_repository',
    url: `${git.url}/private.git`,
    authorization_token: TOKEN,
    ...members,
  });

  it('are cloned at a branch, a commit, or as they are', async () => {
    const resources = [
      repository(),
      repository({
        type: 'repo',
        mount_path: 'deep/er',
        checkout: { type: 'branch', name: 'feature' },
      }),
      repository({
        type: 'github_repository',
        mount_path: '/workspace/old',
        checkout: { type: 'commit', sha: git.commits.first },
      }),
      { type: 'git_repository', url: `${git.url}/public.git` },
    ];
    const id = await sessions.create(
      `for d in private deep/er old public; do cat $d/README; git -C $d rev-parse HEAD; git -C $d remote get-url origin; done; git -C deep/er branch --show-current; git -C private pull 2>&1`,
      { resources },
    );
    const stream = await sessions.stream(id).end();
    expect(stream.stages()).toEqual([
      ...['create_sprite', 'env_file', 'git_credentials', 'provision_setup'].flatMap((name) => [
        `${name} started`,
        `${name} done`,
      ]),
      'runtime_start started',
    ]);
    const { first, second, branch } = git.commits;
    const url = `${git.url}/private.git`;
    expect(stream.output('stdout')).toBe(
      [
        `second${second}\n${url}\n`,
        `second${branch}\n${url}\n`,
        `first${first}\n${url}\n`,
        `second${second}\n${git.url}/public.git\n`,
        'feature\nAlready up to date.\n',
      ].join(''),
    );
    expect((await sessions.get(id))['resources']).toEqual([
      { type: 'git_repository', url, mount_path: 'private' },
      {
        type: 'git_repository',
        url,
        mount_path: 'deep/er',
        checkout: { type: 'branch', name: 'feature' },
      },
      { type: 'git_repository', url, mount_path: 'old', checkout: { type: 'commit', sha: first } },
      { type: 'git_repository', url: `${git.url}/public.git`, mount_path: 'public' },
    ]);
  });

  it('are still reached by a later turn, and in a limited network', async () => {
    const environment_id = await sessions.createEnvironment({ networking: { type: 'limited' } });
    const id = await sessions.create('cat private/README', {
      resources: [repository()],
      environment_id,
    });
    const first = await sessions.stream(id).end();
    expect(first.output()).toBe('second');
    await sessions.prompt(id, 'git -C private fetch origin feature 2>&1 | grep -c feature');
    expect((await sessions.stream(id).end()).last).toMatchObject({ type: 'exit', code: 0 });
  });

  it('are why a limited sandbox reaches a gateway; without one there, it does not', async () => {
    const { port } = new URL(git.url);
    const knock = `(exec 3<>/dev/tcp/127.0.0.1/${port}) 2>/dev/null && echo reached || echo refused`;
    const environment_id = await sessions.createEnvironment({ networking: { type: 'limited' } });
    const inside = async (members: object) => (await sessions.run(knock, members)).output();
    expect(await inside({ environment_id })).toBe('refused\n');
    expect(await inside({ environment_id, resources: [repository()] })).toBe('reached\n');
    expect(await inside({})).toBe('reached\n');
  });

  it('keep their token out of everything', async () => {
    const watch = watchProcesses();
    const id = await sessions.create(
      'cat ~/.git-credentials; cat private/.git/config; env; cat ~/.gitconfig; sleep 0.3',
      { resources: [repository()] },
    );
    const stream = await sessions.stream(id).end();
    const seen = await watch.stop();
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
    expect(seen).toContain('sleep 0.3');
    const answers = await Promise.all(
      ['', `/${id}`, `/${id}/turns`].map((path) => sessions.http.get(`/sessions${path}`)),
    );
    const texts = {
      stream: stream.frames.join('\n'),
      processes: seen,
      logs: service.logs(),
      answers: answers.map(({ text }) => text).join('\n'),
      database: await dumpOf(service.databaseUrl),
    };
    for (const [where, text] of Object.entries(texts)) {
      for (const form of [
        TOKEN,
        encodeURIComponent(TOKEN),
        Buffer.from(`x-access-token:${TOKEN}`).toString('base64'),
      ]) {
        expect([where, text.includes(form)]).toEqual([where, false]);
      }
    }
  });

  it.each([
    [
      'a wrong token',
      () => repository({ authorization_token: 'not-the-token' }),
      /authentication failed/i,
    ],
    [
      'no token',
      () => repository({ authorization_token: undefined }),
      /(authentication|could not read|terminal prompts)/i,
    ],
    [
      'no such repository',
      () => repository({ url: `${git.url}/nowhere.git` }),
      /(not found|not accessible|404)/i,
    ],
    ['no such branch', () => repository({ checkout: { type: 'branch', name: 'nope' } }), /nope/],
    [
      'no such commit',
      () => repository({ checkout: { type: 'commit', sha: 'f'.repeat(40) } }),
      /f{40}|not our ref/,
    ],
  ])('%s fails the stage in words, and does not hang', async (_name, resource, words) => {
    const stream = await sessions.run('echo never', { resources: [resource()] });
    expect(stream.stages().at(-1)).toBe('provision_setup failed');
    const { message = '' } = stream.events.find(({ state }) => state === 'failed') ?? {};
    expect(message).toMatch(words);
    expect(message).toContain('cloning');
    expect(message).not.toContain('not-the-token');
    expect(stream.last.type).toBe('error');
  });
});
