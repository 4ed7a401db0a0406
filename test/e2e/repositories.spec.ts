import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { GIT_TOKEN, type GitSessions, startGitSessions } from '../support/git-sessions.js';
import { dumpOf, watchProcesses } from '../support/leaks.js';
import { describeWith, testWith } from '../support/requirements.js';
import { query } from '../support/service.js';

describeWith(['sandboxes', 'git http-backend'], 'repositories', () => {
  let at: GitSessions;
  beforeAll(async () => {
    at = await startGitSessions();
  });
  afterAll(() => at.stop());

  it('are cloned at a branch, a commit, or as they are', async () => {
    const resources = [
      at.repository('private'),
      at.repository('private', {
        type: 'repo',
        mount_path: 'deep/er',
        checkout: { type: 'branch', name: 'feature' },
      }),
      at.repository('private', {
        type: 'github_repository',
        mount_path: '/workspace/old',
        checkout: { type: 'commit', sha: at.git.commits.first },
      }),
      { type: 'git_repository', url: `${at.git.url}/public.git` },
    ];
    const id = await at.sessions.create(
      `for d in private deep/er old public; do cat $d/README; git -C $d rev-parse HEAD; git -C $d config remote.origin.url; done; git -C deep/er branch --show-current; git -C private pull 2>&1`,
      { resources },
    );
    const stream = await at.sessions.stream(id).end();
    expect(stream.stages()).toEqual([
      ...['create_sprite', 'env_file', 'git_credentials', 'provision_setup'].flatMap((name) => [
        `${name} started`,
        `${name} done`,
      ]),
      'runtime_start started',
    ]);
    const { first, second, branch } = at.git.commits;
    const url = `${at.git.url}/private.git`;
    expect(stream.output('stdout')).toBe(
      [
        `second${second}\n${url}\n`,
        `second${branch}\n${url}\n`,
        `first${first}\n${url}\n`,
        `second${second}\n${at.git.url}/public.git\n`,
        'feature\nAlready up to date.\n',
      ].join(''),
    );
    expect((await at.sessions.get(id))['resources']).toEqual([
      { type: 'git_repository', url, mount_path: 'private' },
      {
        type: 'git_repository',
        url,
        mount_path: 'deep/er',
        checkout: { type: 'branch', name: 'feature' },
      },
      { type: 'git_repository', url, mount_path: 'old', checkout: { type: 'commit', sha: first } },
      { type: 'git_repository', url: `${at.git.url}/public.git`, mount_path: 'public' },
    ]);
  });

  it('have changes and patches, whatever the agent did', async () => {
    const resources = [
      at.repository('private', { mount_path: 'one' }),
      at.repository('private', { mount_path: 'two' }),
      { type: 'git_repository', url: `${at.git.url}/public.git`, mount_path: 'three' },
    ];
    const id = await at.sessions.create(
      `cd one && printf 'new\\n' >>README && mkdir sub && printf 'x\\0y' >sub/binary &&
       git -c user.name=a -c user.email=a@b commit -qam work && git checkout -q -b other && touch staged && git add staged &&
       printf 'gone=1\\n' >>.git/agent-session-base && git rev-parse HEAD && git config core.fsmonitor 'touch ~/ran'`,
      { resources },
    );
    const head = (await at.sessions.stream(id).end()).output('stdout').trim();
    const { status, body } = await at.sessions.http.get(`/sessions/${id}/changes`);
    const { second } = at.git.commits;
    const file = { status: 'added', previous_path: null, additions: 0, deletions: 0 };
    expect([status, body]).toEqual([
      200,
      {
        data: [
          {
            mount_path: 'one',
            base_sha: second,
            head_sha: head,
            files: [
              { ...file, path: 'README', status: 'modified', additions: 1, deletions: 1 },
              { ...file, path: 'staged' },
              { ...file, path: 'sub/binary', additions: null, deletions: null },
            ],
          },
          { mount_path: 'two', base_sha: second, head_sha: second, files: [] },
          { mount_path: 'three', base_sha: second, head_sha: second, files: [] },
        ],
      },
    ]);
    const patch = await at.sessions.http.get(`/sessions/${id}/changes/patch?mount_path=one`);
    expect(patch.status).toBe(200);
    expect(patch.text).toContain('diff --git a/README b/README');
    expect(patch.text).toContain('GIT binary patch');
    const refused = async (route: string) =>
      (await at.sessions.http.get(`/sessions/${id}/changes/patch${route}`)).status;
    expect(await refused('?mount_path=two')).toBe(200);
    // More than a user may have open: each has to be closed, though nobody reads it.
    const address = `${at.service.url}/sessions/${id}/changes/patch?mount_path=one`;
    const headers = { authorization: `Bearer ${at.service.token}` };
    for (let heads = 0; heads < 17; heads += 1) {
      expect((await fetch(address, { method: 'HEAD', headers })).status).toBe(200);
    }
    expect(await refused('')).toBe(422);
    expect(await refused('?mount_path=none')).toBe(404);
    await at.sessions.prompt(id, 'ls ~/ran; rm -rf two/.git && mkdir two/.git');
    expect((await at.sessions.stream(id).end()).output('stdout')).not.toContain('/ran');
    expect((await at.sessions.http.get(`/sessions/${id}/changes`)).status).toBe(409);
    expect(await refused('?mount_path=one')).toBe(200);
  });

  it('keep what each turn has changed, also when the sandbox is gone', async () => {
    const resources = [
      at.repository('private', { mount_path: 'one' }),
      at.repository('private', { mount_path: 'two' }),
    ];
    const id = await at.sessions.create('echo 1 >>one/README', { resources });
    await at.sessions.stream(id).end();
    const read = async (route: string) => {
      const { status, text } = await at.sessions.http.get(`/sessions/${id}/changes${route}`);
      return [status, text] as const;
    };
    const live = {
      list: await read(''),
      patch: await read('/patch?mount_path=one'),
    };
    expect(live.patch[1]).toContain('+second1\n');
    expect(await read('?turn=1')).toEqual(live.list);
    expect(await read('/patch?mount_path=one&turn=1')).toEqual(live.patch);
    expect(await read('/patch?mount_path=two&turn=1')).toEqual([200, '']);
    expect((await read('/patch?turn=1'))[0]).toBe(422);

    // A turn that fails loses its sandbox. Its patch is longer than what is kept.
    await at.sessions.prompt(id, 'head -c 20000000 /dev/urandom >one/large; exit 3');
    await at.sessions.stream(id).end();
    expect((await read(''))[0]).toBe(409);
    expect(await read('?turn=1')).toEqual(live.list);
    expect(await read('/patch?mount_path=one&turn=1')).toEqual(live.patch);
    const kept = await at.sessions.http.get(`/sessions/${id}/changes?turn=2`);
    expect(kept.body.data.map(({ files }) => files)).toEqual([
      [
        expect.objectContaining({ path: 'README', additions: 1 }),
        expect.objectContaining({ path: 'large', status: 'added', additions: null }),
      ],
      [],
    ]);
    const cut = await at.sessions.http.get(`/sessions/${id}/changes/patch?mount_path=one&turn=2`);
    expect([cut.headers['x-patch-truncated'], cut.text.length]).toEqual(['true', 16 * 2 ** 20]);
    expect(await read('?turn=3')).toEqual([
      404,
      JSON.stringify({ detail: 'No changes are kept of this turn' }),
    ]);
    expect((await read('?turn=0'))[0]).toBe(400);
    const other = await at.service.createUser();
    expect((await other.http.get(`/sessions/${id}/changes?turn=1`)).status).toBe(404);
    const stored = () =>
      query(at.service.databaseUrl, 'SELECT FROM turn_changes WHERE session_id = $1', [id]);
    expect(await stored()).toHaveLength(4);
    await at.sessions.http.delete(`/sessions/${id}/delete`);
    expect(await stored()).toEqual([]);
  });

  testWith(
    ['a gateway for all connections'],
    'are cloned with their token however the address is written',
    async () => {
      const { port } = new URL(at.git.url);
      const url = `HTTP://LocalHost:${port}/private.git`;
      const id = await at.sessions.create(
        'cat private/README; git -C private fetch && echo fetched',
        {
          resources: [at.repository('private', { url })],
        },
      );
      const stream = await at.sessions.stream(id).end();
      expect(stream.output('stdout')).toBe('secondfetched\n');
    },
  );

  it('are cloned beside each other when one is called as the draft of another', async () => {
    const url = `${at.git.url}/public.git`;
    const mounts = ['a.cloning', 'a', '.cloning'];
    const id = await at.sessions.create(`for d in ${mounts.join(' ')}; do cat $d/README; done`, {
      resources: mounts.map((mount_path) => ({ type: 'git_repository', url, mount_path })),
    });
    expect((await at.sessions.stream(id).end()).output('stdout')).toBe('secondsecondsecond');
  });

  it('are still reached by a later turn, and in a limited network', async () => {
    const environment_id = await at.sessions.createEnvironment({ networking: { type: 'limited' } });
    const id = await at.sessions.create('cat private/README', {
      resources: [at.repository('private')],
      environment_id,
    });
    const first = await at.sessions.stream(id).end();
    expect(first.output()).toBe('second');
    await at.sessions.prompt(id, 'git -C private fetch origin feature 2>&1 | grep -c feature');
    expect((await at.sessions.stream(id).end()).last).toMatchObject({ type: 'exit', code: 0 });
  });

  testWith(
    ['a gateway for all connections'],
    'are why a limited sandbox reaches a gateway; without one there, it does not',
    async () => {
      const { port } = new URL(at.git.url);
      const knock = `(exec 3<>/dev/tcp/127.0.0.1/${port}) 2>/dev/null && echo reached || echo refused`;
      const environment_id = await at.sessions.createEnvironment({
        networking: { type: 'limited' },
      });
      const inside = async (members: object) => (await at.sessions.run(knock, members)).output();
      expect(await inside({ environment_id })).toBe('refused\n');
      expect(await inside({ environment_id, resources: [at.repository('private')] })).toBe(
        'reached\n',
      );
      expect(await inside({})).toBe('reached\n');
    },
  );

  it('keep their token out of everything', async () => {
    const watch = watchProcesses();
    const id = await at.sessions.create(
      'cat private/.git/config; env; cat $GIT_CONFIG_SYSTEM; git -C private fetch; grep -rs . ~ || true; sleep 0.3',
      { resources: [at.repository('private')] },
    );
    const stream = await at.sessions.stream(id).end();
    const seen = await watch.stop();
    expect(stream.last).toMatchObject({ type: 'exit', code: 0 });
    expect(seen).toContain('sleep 0.3');
    const answers = await Promise.all(
      ['', `/${id}`, `/${id}/turns`].map((path) => at.sessions.http.get(`/sessions${path}`)),
    );
    const texts = {
      stream: stream.frames.join('\n'),
      processes: seen,
      logs: at.service.logs(),
      answers: answers.map(({ text }) => text).join('\n'),
      database: await dumpOf(at.service.databaseUrl),
    };
    for (const [where, text] of Object.entries(texts)) {
      for (const form of [
        GIT_TOKEN,
        encodeURIComponent(GIT_TOKEN),
        Buffer.from(`x-access-token:${GIT_TOKEN}`).toString('base64'),
      ]) {
        expect([where, text.includes(form)]).toEqual([where, false]);
      }
    }
  });

  it.each([
    [
      'a wrong token',
      () => at.repository('private', { authorization_token: 'not-the-token' }),
      /authentication failed/i,
    ],
    [
      'no token',
      () => at.repository('private', { authorization_token: undefined }),
      /(authentication|could not read|terminal prompts)/i,
    ],
    [
      'no such repository',
      () => at.repository('private', { url: `${at.git.url}/nowhere.git` }),
      /(not found|not accessible|404)/i,
    ],
    [
      'no such branch',
      () => at.repository('private', { checkout: { type: 'branch', name: 'nope' } }),
      /nope/,
    ],
    [
      'no such commit',
      () => at.repository('private', { checkout: { type: 'commit', sha: 'f'.repeat(40) } }),
      /f{40}|not our ref/,
    ],
  ])('%s fails the stage in words, and does not hang', async (_name, resource, words) => {
    const stream = await at.sessions.run('echo never', { resources: [resource()] });
    expect(stream.stages().at(-1)).toBe('provision_setup failed');
    const { message = '' } = stream.events.find(({ state }) => state === 'failed') ?? {};
    expect(message).toMatch(words);
    expect(message).toContain('cloning');
    expect(message).not.toContain('not-the-token');
    expect(stream.last.type).toBe('error');
  });
});
