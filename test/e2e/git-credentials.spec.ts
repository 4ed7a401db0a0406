import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { GIT_TOKEN, type GitSessions, startGitSessions } from '../support/git-sessions.js';
import { findPlanted } from '../support/planted-secrets.js';
import { commandOf } from '../support/sandbox-processes.js';
import { contentsOf } from '../support/sandbox-remains.js';
import { describeWith, testWith } from '../support/requirements.js';
import { eventually } from '../support/sessions.js';

const IDENTITY = 'git config --global user.name T; git config --global user.email t@t.example';

describeWith(['sandboxes', 'git http-backend'], 'repositories with a token', () => {
  let at: GitSessions;
  beforeAll(async () => {
    at = await startGitSessions();
  });
  afterAll(() => at.stop());
  const run = async (script: string, members: object) => {
    const stream = await at.sessions.run(`set -e; ${script}`, members);
    expect([stream.output(), stream.last]).toEqual([
      expect.any(String),
      expect.objectContaining({ type: 'exit', code: 0 }),
    ]);
    return stream.output('stdout');
  };

  it('are pushed to, by the first turn and by later ones', async () => {
    const push = (name: string) =>
      `${IDENTITY}; cd private; echo ${name} >${name}; git add .; git commit -qm ${name}; git push -q origin HEAD:${name}; git ls-remote origin ${name} | wc -l`;
    const id = await at.sessions.create(push('one'), { resources: [at.repository('private')] });
    expect((await at.sessions.stream(id).end()).output('stdout')).toBe('1\n');
    await at.sessions.prompt(id, push('two'));
    expect((await at.sessions.stream(id).end()).last).toMatchObject({ type: 'exit', code: 0 });
    const out = await run(
      'cd private; git fetch -q origin one two; git log --format=%s -1 origin/two',
      {
        resources: [at.repository('private')],
      },
    );
    expect(out).toBe('two\n');
  });

  it('are cloned as submodules, with a relative address', async () => {
    const resources = [at.repository('umbrella'), at.repository('library')];
    const out = await run('cd umbrella; git submodule --quiet update --init; cat library/README', {
      resources,
    });
    expect(out).toBe('second');
  });

  it('that the session does not have do not get the token', async () => {
    const script = `cd umbrella; git submodule --quiet update --init 2>&1 || echo refused; git clone -q ${at.git.url}/library.git x 2>&1 || echo refused`;
    const out = await run(script, { resources: [at.repository('umbrella')] });
    expect(out.match(/^refused$/gm)).toHaveLength(2);
    expect(at.git.served.filter((path) => path.startsWith('/library.git')).length).toBeLessThan(10);
  });

  testWith(['git lfs'], 'have large files, in submodules too', async () => {
    const store = `${IDENTITY}; git lfs install --skip-repo; cd library; git lfs track '*.bin'; head -c 300000 /dev/zero | tr '\\0' x >big.bin; git add .; git commit -qm large; git push -q origin HEAD:main`;
    await run(`{ ${store}; } >&2`, { resources: [at.repository('library')] });
    const resources = [at.repository('umbrella'), at.repository('library')];
    const fetch = `git lfs install --skip-repo >/dev/null; cd umbrella; git submodule --quiet update --init --remote; wc -c <library/big.bin; tail -c 3 library/big.bin`;
    expect(await run(fetch, { resources })).toBe('300000\nxxx');
  });

  testWith(['root', 'sandboxes on this host'], 'keep it out of the sandbox', async () => {
    const id = await at.sessions.create(
      'cd private; git fetch -q; git credential fill <<<"url=$(git remote get-url origin)"; echo ready; sleep 30',
      { resources: [at.repository('private')] },
    );
    const stream = at.sessions.stream(id);
    await stream.until(() => stream.output().includes('ready'));
    // The shell says so before it has started what it then waits for.
    const inside = await eventually(async () => {
      const contents = await contentsOf(at.service);
      return contents.pids.some((pid) => commandOf(pid).includes('sleep 30')) && contents;
    }, 'the script to wait');
    const { found, files, processes } = findPlanted(inside, [GIT_TOKEN]);
    expect(found).toEqual([]);
    // It would be found.
    expect(findPlanted(inside, ['echo ready']).found.join('\n')).toMatch(/memory of/);
    expect(files).toBeGreaterThan(20);
    expect(processes.join('\n')).toContain('sleep 30');
    expect(processes.join('\n')).toContain('supervisor/main.js');
    await at.sessions.http.post(`/sessions/${id}/terminate`);
    await stream.end();
  });
});
