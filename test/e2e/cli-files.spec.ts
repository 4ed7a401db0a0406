import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { runCli } from '../support/cli.js';
import { type GitServer, startGitServer } from '../support/git-server.js';
import { describeWith } from '../support/requirements.js';
import type { Service } from '../support/service.js';
import { leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';

let git: GitServer;
let service: Service;
let sessions: SessionsOf;
let folder: string;
let id: string;

const cli = (args: string[], url = service.url, input = '') =>
  runCli(args, { AGENT_SESSIONS_URL: url, AGENT_SESSIONS_TOKEN: service.token }, input);
const sha = (data: Buffer) => createHash('sha256').update(data).digest('hex');

/** Passes bytes on to the service, and cuts each of the first connections after some bytes of its answer. */
async function startCuttingProxy(cuts: number[]): Promise<Server> {
  const { port, hostname } = new URL(service.url);
  const server = createServer((client) => {
    let left = cuts.shift() ?? Number.POSITIVE_INFINITY;
    const upstream = connect(Number(port), hostname);
    client.pipe(upstream);
    upstream.on('data', (data) => {
      client.write(data.subarray(0, Math.min(left, data.length)));
      left -= data.length;
      if (left <= 0) for (const side of [client, upstream]) side.destroy();
    });
    upstream.on('end', () => client.end());
    for (const side of [client, upstream]) side.on('error', () => undefined);
    client.on('close', () => upstream.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

describeWith(['sandboxes', 'git http-backend'], 'files on the command line', () => {
  beforeAll(async () => {
    git = await startGitServer('a-token');
    service = await startSessionService({ OPENAI_BASE_URL: git.url });
    sessions = new SessionsOf(service, service);
    id = await sessions.create('mkdir src && printf one >src/a && echo more >>public/README', {
      resources: [{ type: 'git_repository', url: `${git.url}/public.git` }],
    });
    await sessions.stream(id).end();
    folder = await mkdtemp(join(tmpdir(), 'cli-files-'));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
    await leaveNothing(service, [sessions]);
    await service.stop();
    await git.stop();
  });

  it('are listed in as many pages as it takes', async () => {
    await sessions.prompt(id, 'mkdir many && cd many && touch $(seq 1500)');
    await sessions.stream(id).end();
    const listed = await cli(['files', 'list', id, 'many', '--limit', '2000', '--json']);
    expect(listed.json).toMatchObject({ has_more: false });
    const paths = (listed.json['data'] as { path: string }[]).map(({ path }) => path);
    expect(new Set(paths).size).toBe(1500);
    const few = await cli(['files', 'list', id, 'many', '--limit', '2', '--json']);
    expect(few.json).toMatchObject({ has_more: true, data: [{ path: 'many/1' }, {}] });
    expect((await cli(['files', 'list', id, 'src'])).stdout).toMatch(
      /^TYPE +MODE +SIZE +MODIFIED +PATH\nfile +0644 +3 +\S+ +src\/a\n$/,
    );
  });

  it('are uploaded, and downloaded over connections that break', async () => {
    const content = randomBytes(3_000_000);
    const source = join(folder, 'source');
    await writeFile(source, content);
    const put = await cli(['files', 'put', id, source, 'deep/data', '--mode', '0755', '--json']);
    expect(put.json).toMatchObject({ path: 'deep/data', size: 3_000_000, mode: '0755' });
    const proxy = await startCuttingProxy([1_000_000, 0, 700_000]);
    try {
      const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
      const target = join(folder, 'target');
      const got = await cli(['files', 'get', id, 'deep/data', target], url);
      expect([got.code, got.stderr]).toEqual([0, '']);
      expect(got.stdout).toBe(`Wrote 3000000 bytes to ${target}\n`);
      expect(sha(await readFile(target))).toBe(sha(content));
    } finally {
      proxy.close();
    }
    const piped = await cli(['files', 'put', id, '-', 'piped'], service.url, 'from a pipe');
    expect(piped).toMatchObject({ code: 0, stdout: 'Wrote 11 bytes to piped\n' });
    expect((await cli(['files', 'get', id, 'piped', '-'])).stdout).toBe('from a pipe');
    const archive = join(folder, 'a.tar.gz');
    expect((await cli(['files', 'get', id, 'src', archive, '--archive', 'tar.gz'])).code).toBe(0);
    expect(execFileSync('tar', ['-xzOf', archive, 'a'], { encoding: 'utf8' })).toBe('one');
    expect((await readdir(folder)).sort()).toEqual(['a.tar.gz', 'source', 'target']);
  });

  it('have changes and a patch', async () => {
    const listed = await cli(['changes', id, '--json']);
    const file = { path: 'README', status: 'modified', previous_path: null };
    expect(listed.json).toMatchObject({
      data: [{ mount_path: 'public', files: [{ ...file, additions: 1, deletions: 1 }] }],
    });
    expect((await cli(['changes', id])).stdout).toMatch(
      /^public: base [0-9a-f]{12}, commit [0-9a-f]{12}\nSTATUS +ADDED +DELETED +PATH\nmodified +1 +1 +README\n$/,
    );
    const patch = await cli(['changes', id, '--patch']);
    expect(patch.stdout).toContain('diff --git a/README b/README');
    expect((await cli(['changes', id, '--patch', '--turn', '1'])).stdout).toBe(patch.stdout);
  });

  it('are refused with the reason', async () => {
    const none = await cli(['files', 'get', id, 'none', join(folder, 'none')]);
    expect(none).toMatchObject({ code: 3, stderr: 'error: No such file\n' });
    expect(await readdir(folder)).not.toContain('none');
    expect(await cli(['files', 'list', 'nonsense'])).toMatchObject({ code: 3 });
    expect(await cli(['files', 'list', id, '--token', 'wrong'])).toMatchObject({
      code: 1,
      stderr: 'error: The service rejects the token\n',
    });
    expect(await cli(['changes', id, '--turn', '9'])).toMatchObject({ code: 3 });
    expect(await cli(['changes', id], 'http://127.0.0.1:1')).toMatchObject({ code: 5 });
    const noToken = await runCli(['files', 'list', id], { AGENT_SESSIONS_TOKEN: undefined });
    expect(noToken).toMatchObject({ code: 2, stderr: expect.stringContaining('token') });
  });
});
