import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, readlink, rm, stat, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { query as select, type Service } from '../support/service.js';
import { eventually, leaveNothing, SessionsOf, startSessionService } from '../support/sessions.js';

const GONE = 'Session backend is no longer available; start a new session.';

let service: Service;
let sessions: SessionsOf;
let id: string;
let folder: string;

beforeAll(async () => {
  service = await startSessionService();
  sessions = new SessionsOf(service, service);
  id = await sessions.create(
    'mkdir -p src/sub && printf one > src/a && printf two > src/sub/b && ln -s a src/link && echo home > ~/notes && mkfifo pipe && chmod 755 src/a',
  );
  await sessions.stream(id).end();
  folder = await mkdtemp(join(tmpdir(), 'archives-'));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
  await leaveNothing(service, [sessions]);
  await service.stop();
});

interface Options {
  method?: string;
  headers?: Record<string, string>;
  body?: RequestInit['body'];
  token?: string;
}

/** Sends a request for files of the session. */
async function files(route: string, query: Record<string, string> = {}, options: Options = {}) {
  const { token = service.token, headers, ...rest } = options;
  const url = `${service.url}/sessions/${id}/files${route}?${new URLSearchParams(query).toString()}`;
  return fetch(url, { ...rest, headers: { authorization: `Bearer ${token}`, ...headers } });
}
const put = (path: string, body: RequestInit['body'], query: Record<string, string> = {}) =>
  files('/content', { path, ...query }, { method: 'PUT', body });
const detail = async (answer: Response) => [
  answer.status,
  ((await answer.json()) as { detail: unknown }).detail,
];
const sha = (data: Buffer) => createHash('sha256').update(data).digest('hex');
const bytes = async (answer: Response) => Buffer.from(await answer.arrayBuffer());

describe('the files of a session', () => {
  it('are listed in pages', async () => {
    const all = await (await files('', { path: 'src' })).json();
    expect(all).toEqual({
      data: [
        { type: 'file', path: 'src/a', size: 3, mode: '0755', modified_at: expect.any(String) },
        {
          type: 'symlink',
          path: 'src/link',
          size: 0,
          mode: '0777',
          modified_at: expect.any(String),
        },
        expect.objectContaining({ type: 'directory', path: 'src/sub' }),
      ],
      has_more: false,
    });
    const paths: string[] = [];
    for (let more = true; more;) {
      const page = (await (
        await files('', { path: 'src', limit: '1', after: paths.at(-1) ?? '' })
      ).json()) as { data: { path: string }[]; has_more: boolean };
      paths.push(...page.data.map(({ path }) => path));
      more = page.has_more;
    }
    expect(paths).toEqual(['src/a', 'src/link', 'src/sub']);
    const top = (await (await files('')).json()) as { data: { path: string; type: string }[] };
    expect(top.data.map(({ path, type }) => `${type} ${path}`)).toEqual([
      'other pipe',
      'directory src',
    ]);
    const one = (await (await files('', { path: 'src/a' })).json()) as { data: { path: string }[] };
    expect(one.data.map(({ path }) => path)).toEqual(['src/a']);
  });

  it('are listed completely in pages of the largest size', async () => {
    await sessions.prompt(id, 'mkdir many; cd many; seq 2500 | xargs touch');
    await sessions.stream(id).end();
    await sessions.reach(id, 'completed');
    const paths: string[] = [];
    const sizes: number[] = [];
    for (let more = true; more;) {
      const page = (await (
        await files('', { path: 'many', after: paths.at(-1) ?? '' })
      ).json()) as { data: { path: string }[]; has_more: boolean };
      paths.push(...page.data.map(({ path }) => path));
      sizes.push(page.data.length);
      more = page.has_more;
    }
    const expected = Array.from({ length: 2500 }, (_, index) => `many/${index + 1}`).toSorted();
    expect([sizes, paths]).toEqual([[1000, 1000, 500], expected]);
    // A page that is requested again, and what another user asks for, begin anew.
    const again = (await (await files('', { path: 'many', after: paths[999] ?? '' })).json()) as {
      data: { path: string }[];
    };
    expect(again.data.map(({ path }) => path)).toEqual(paths.slice(1000, 2000));
    const other = await service.createUser();
    const stolen = { path: 'many', after: again.data.at(-1)?.path ?? '' };
    expect((await files('', stolen, { token: other.token })).status).toBe(404);
    expect((await files('', { path: 'many' }, { method: 'DELETE' })).status).toBe(200);
  });

  it('are read with their headers', async () => {
    const answer = await files('/content', { path: 'src/a' });
    expect(answer.status).toBe(200);
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-length': '3',
      'content-disposition': `attachment; filename="a"; filename*=UTF-8''a`,
      'accept-ranges': 'bytes',
      etag: expect.stringMatching(/^"[\w-]{27}"$/),
      'x-content-type-options': 'nosniff',
    });
    expect(await answer.text()).toBe('one');
    const home = await files('/content', { path: '/home/agent/notes' });
    expect(await home.text()).toBe('home\n');
    const etag = answer.headers.get('etag') ?? '';
    const same = await files('/content', { path: 'src/a' }, { headers: { 'if-none-match': etag } });
    expect([same.status, await same.text()]).toEqual([304, '']);
    const head = await files('/content', { path: 'src/a' }, { method: 'HEAD' });
    expect([head.status, head.headers.get('content-length')]).toEqual([200, '3']);
  });

  it('are read in parts, which go on after an interruption', async () => {
    const content = randomBytes(5_000_000);
    expect((await put('large.bin', content)).status).toBe(200);
    const first = await files(
      '/content',
      { path: 'large.bin' },
      { headers: { range: 'bytes=0-1999999' } },
    );
    expect([first.status, first.headers.get('content-range')]).toEqual([
      206,
      'bytes 0-1999999/5000000',
    ]);
    const etag = first.headers.get('etag') ?? '';
    const rest = await files(
      '/content',
      { path: 'large.bin' },
      { headers: { range: 'bytes=2000000-', 'if-range': etag } },
    );
    expect(rest.status).toBe(206);
    expect(sha(Buffer.concat([await bytes(first), await bytes(rest)]))).toBe(sha(content));
    const beyond = await files(
      '/content',
      { path: 'large.bin' },
      { headers: { range: 'bytes=5000000-' } },
    );
    expect([beyond.status, beyond.headers.get('content-range')]).toEqual([416, 'bytes */5000000']);
    await put('large.bin', 'changed');
    const changed = await files(
      '/content',
      { path: 'large.bin' },
      { headers: { range: 'bytes=2000000-', 'if-range': etag } },
    );
    expect([changed.status, await changed.text()]).toEqual([200, 'changed']);
  });

  it('are written whole, of any content type, and deleted', async () => {
    const answer = await put('new/deep/run.sh', '#!/bin/sh\necho ran\n', { mode: '0755' });
    expect([answer.status, await answer.json()]).toEqual([
      200,
      {
        type: 'file',
        path: 'new/deep/run.sh',
        size: 19,
        mode: '0755',
        modified_at: expect.any(String),
      },
    ]);
    const json = await files(
      '/content',
      { path: 'new/data.json' },
      { method: 'PUT', body: '{"not": ', headers: { 'content-type': 'application/json' } },
    );
    expect(json.status).toBe(200);
    expect((await put('new/empty', '')).status).toBe(200);
    await sessions.prompt(
      id,
      'new/deep/run.sh; cat new/data.json; stat -c %s new/empty; echo turn > src/sub/b',
    );
    const stream = sessions.stream(id);
    await stream.end();
    expect(stream.output()).toContain('ran\n{"not": 0\n');
    expect(await detail(await files('', { path: 'new' }, { method: 'DELETE' }))).toEqual([
      200,
      'File deleted',
    ]);
    expect(await detail(await files('/content', { path: 'new/empty' }))).toEqual([
      404,
      'No such file',
    ]);
  });

  it('do not appear if the upload ends early', async () => {
    await put('half.bin', 'before');
    await new Promise<void>((resolve) => {
      const upload = request(`${service.url}/sessions/${id}/files/content?path=half.bin`, {
        method: 'PUT',
        headers: { authorization: `Bearer ${service.token}`, 'content-length': '10000000' },
      });
      upload.on('error', () => resolve());
      upload.write(Buffer.alloc(2_000_000), () => upload.destroy());
      upload.on('close', () => resolve());
    });
    await eventually(async () => {
      const { data } = (await (await files('')).json()) as { data: { path: string }[] };
      return data.every(({ path }) => !path.startsWith('.'));
    }, 'nothing to be left of the upload');
    expect(await (await files('/content', { path: 'half.bin' })).text()).toBe('before');
  });

  it('are archived', async () => {
    await put('src/größe', 'x'.repeat(300_000));
    const tar = await files('/archive', { path: 'src' });
    expect(tar.headers.get('content-type')).toBe('application/gzip');
    expect(tar.headers.get('content-disposition')).toContain('filename="src.tar.gz"');
    await writeFile(join(folder, 'a.tar.gz'), await bytes(tar));
    execFileSync('sh', ['-c', 'mkdir tar && tar -xzf a.tar.gz -C tar'], { cwd: folder });
    const zip = await files('/archive', { path: 'src', format: 'zip' });
    await writeFile(join(folder, 'a.zip'), await bytes(zip));
    execFileSync('python3', [
      '-c',
      'import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; z.extractall(sys.argv[2])',
      join(folder, 'a.zip'),
      join(folder, 'zip'),
    ]);
    for (const kind of ['tar', 'zip']) {
      expect((await readdir(join(folder, kind))).sort()).toEqual(['a', 'größe', 'link', 'sub']);
      expect(await readFile(join(folder, kind, 'sub/b'), 'utf8')).toBe('turn\n');
      expect((await readFile(join(folder, kind, 'größe'))).length).toBe(300_000);
    }
    expect(await readlink(join(folder, 'tar/link'))).toBe('a');
    expect((await stat(join(folder, 'tar/a'))).mode & 0o777).toBe(0o755);
  });

  it('are refused with the reason', async () => {
    const other = await service.createUser();
    const cases: [Response, number, string][] = [
      [await files('', {}, { token: other.token }), 404, 'Session not found'],
      [await files('', { path: 'none' }), 404, 'No such file'],
      [await files('', { path: '../../etc' }), 404, 'No such file'],
      [await files('', { path: '/etc' }), 404, 'No such file'],
      [await files('', { limit: '0' }), 400, 'limit must be a whole number from 1 to 1000'],
      [await files('/content'), 422, 'path is required'],
      [await files('/content', { path: 'src' }), 404, 'No such file'],
      [await files('/content', { path: 'pipe' }), 404, 'No such file'],
      [await files('/content', { path: 'a\0b' }), 404, 'No such file'],
      [await files('/archive', { path: 'none' }), 404, 'No such file'],
      [await files('/archive', { format: 'rar' }), 422, 'format must be one of tar.gz, zip'],
      [await put('x', 'y', { mode: '999' }), 422, 'mode must be octal permissions, such as 0644'],
      [await put('src', 'y'), 409, 'This is not possible: the path is a directory'],
      [
        await files('', { path: '/workspace' }, { method: 'DELETE' }),
        409,
        'This is not possible: the home and the workspace cannot be removed',
      ],
    ];
    for (const [answer, status, sentence] of cases) {
      expect(await detail(answer)).toEqual([status, sentence]);
    }
  });

  it('are there before the first turn if the session was created with them', async () => {
    const script = 'cat data/a b; stat -c %s b; ls -A';
    const created = await sessions.create(script, {
      resources: [
        { type: 'file', path: 'data/a', content: 'text\n' },
        {
          type: 'file',
          path: '/workspace/b',
          content_base64: Buffer.alloc(100_000).toString('base64'),
        },
      ],
    });
    const stream = await sessions.stream(created).end();
    expect(stream.output('stdout').replaceAll('\uFFFD', '')).toBe('text\n100000\nb\ndata\n');
    expect((await sessions.get(created))['resources']).toEqual([
      { type: 'file', path: 'data/a', size: 5 },
      { type: 'file', path: 'b', size: 100_000 },
    ]);
    const kept = await select(service.databaseUrl, 'SELECT count(*)::int AS n FROM session_files');
    expect(kept).toEqual([{ n: 0 }]);
  });

  it('are gone with the sandbox', async () => {
    await service.http.post(`/sessions/${id}/terminate`, {});
    for (const route of ['', '/archive']) {
      expect(await detail(await files(route))).toEqual([409, GONE]);
    }
    expect(await detail(await files('/content', { path: 'src/a' }))).toEqual([409, GONE]);
    expect(await detail(await put('src/a', 'x'))).toEqual([409, GONE]);
  });
});
