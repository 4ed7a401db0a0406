import { execFile } from 'node:child_process';
import { connect } from 'node:net';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type Answer, HttpClient } from '../support/http-client.js';
import { testWith } from '../support/requirements.js';
import { type Service, startService } from '../support/service.js';

const NOWHERE = '00000000-0000-4000-8000-000000000000';
const MIB = 2 ** 20;

let service: Service;
beforeAll(async () => {
  service = await startService({ env: { BODY_LIMIT: '1MiB' } });
});
afterAll(() => service.stop());

/** Every refusal is JSON with `detail`, tells nothing of our inside, and is not our fault. */
function expectRefusal(answer: Answer, status: number): void {
  expect([answer.status, answer.text]).toEqual([status, expect.stringContaining('"detail"')]);
  expect(answer.headers['content-type']).toBe('application/json; charset=utf-8');
  if (status === 422) expect(['string', 'object']).toContain(typeof answer.body.detail);
  else expect(typeof answer.body.detail).toBe('string');
  expect(answer.text).not.toMatch(/node_modules|\.ts:|\.js:|at \w+ \(|SELECT|INSERT/);
}

const raw = (body: string | Buffer, headers?: Record<string, string>) =>
  service.http.post('/agents', undefined, { raw: body, headers });

describe('bodies', () => {
  it.each<[string, string | Buffer]>([
    ['words', 'hello'],
    ['half an object', '{"name":'],
    ['a trailing comma', '{"name":"a",}'],
    ['single quotes', "{'name':'a'}"],
    ['NaN', '{"version":NaN}'],
    ['two documents', '{}{}'],
    ['bytes that are not UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d])],
    ['a raw NUL', '{"name":"a\0b"}'],
    ['10,000 levels of lists', '['.repeat(10_000) + ']'.repeat(10_000)],
    ['10,000 levels of objects', '{"name":'.repeat(10_000) + '1' + '}'.repeat(10_000)],
    ['200,000 levels that do not end', '['.repeat(200_000)],
    ['white space', '   '],
  ])('that are no JSON: %s', async (_name, body) => expectRefusal(await raw(body), 400));

  it.each(['null', '[]', '[{}]', '"text"', '3', 'true', '1e999', '""'])(
    'that are JSON but no object: %s',
    async (body) => {
      const answer = await raw(body);
      expectRefusal(answer, 422);
      expect(answer.body.detail).toEqual([
        { type: 'object_type', loc: ['body'], msg: expect.any(String) },
      ]);
    },
  );

  it.each([
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'application/jsonx',
    'nonsense',
    '',
    'a/b/c; d',
  ])('of the type %p are not read', async (type) =>
    expectRefusal(await raw('{"name":"a"}', { 'content-type': type }), 415),
  );

  it.each([
    'application/json',
    'application/json; charset=utf-8',
    'APPLICATION/JSON',
    'application/merge-patch+json',
  ])('of the type %p are', async (type) => {
    const answer = await raw('{"name":"a","provider":"shell","model":"shell/bash"}', {
      'content-type': type,
    });
    expect(answer.status).toBe(201);
  });

  it('that are not there leave every field missing', async () => {
    for (const headers of [undefined, { 'content-type': 'text/plain' }]) {
      const answer = await service.http.post('/agents', undefined, headers && { headers });
      expectRefusal(answer, 422);
      expect(answer.body.detail).toHaveLength(3);
    }
  });

  it.each(['node:http', 'fetch'])(
    'of 5 MB are a 413 that %s reads, though it is still sending',
    async (client) => {
      const large = JSON.stringify({ name: 'x'.repeat(5_000_000) });
      for (let again = 0; again < 5; again += 1) {
        const { status, text } =
          client === 'fetch'
            ? await fetched(large)
            : await service.http.post('/agents', undefined, { raw: large });
        expect([status, text]).toEqual([413, '{"detail":"The request body is too large"}']);
      }
    },
  );

  testWith(
    ['python3'],
    'of 5 MB are a 413 that Python reads, whether it keeps the connection',
    async () => {
      const program = `
import http.client, sys, urllib.error, urllib.request
address, token = sys.argv[1:]
body = b'{"name":"' + b'x' * 5000000 + b'"}'
headers = {'Authorization': 'Bearer ' + token, 'Content-Type': 'application/json'}
for again in range(5):
    connection = http.client.HTTPConnection(address.removeprefix('http://'))
    connection.request('POST', '/agents', body, headers)
    answer = connection.getresponse()
    print(answer.status, answer.read().decode())
    try:
        urllib.request.urlopen(urllib.request.Request(address + '/agents', body, headers))
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())`;
      const run = promisify(execFile);
      const { stdout } = await run('/usr/bin/python3', ['-c', program, service.url, service.token]);
      expect(stdout.trim().split('\n')).toEqual(
        Array.from({ length: 10 }, () => '413 {"detail":"The request body is too large"}'),
      );
    },
  );

  it('that are too large are a 413, with or without a length', async () => {
    const large = JSON.stringify({ name: 'x'.repeat(MIB + 10) });
    expectRefusal(await raw(large), 413);
    expectRefusal(
      await service.http.post('/agents', undefined, { raw: large, chunked: true }),
      413,
    );
  });

  it.each<[string, unknown]>([
    ['an escaped NUL', '{"name":"a\\u0000b","provider":"shell","model":"shell/bash"}'],
    ['half a surrogate pair', '{"name":"\\ud800","provider":"shell","model":"shell/bash"}'],
    ['the other half', '{"name":"\\udc00x","provider":"shell","model":"shell/bash"}'],
    [
      'a NUL in a key',
      '{"name":"a","provider":"shell","model":"shell/bash","metadata":{"a\\u0000":"b"}}',
    ],
    [
      'a surrogate deep inside',
      '{"name":"a","provider":"shell","model":"shell/bash","skills":[{"name":"s","content":"\\udfff"}]}',
    ],
  ])('with text that cannot be stored: %s', async (_name, body) => {
    const answer = await raw(String(body));
    expectRefusal(answer, 422);
    expect(answer.body.detail[0]).toMatchObject({ type: 'string_unicode' });
  });

  it('with anything in fields that are not known are taken', async () => {
    const note = '"x_note":"\\u0000","x_\\ud800":1';
    const answer = await raw(
      `{"name":"a","provider":"shell","model":"shell/bash",${note},"skills":[{"name":"s","content":"c",${note}}]}`,
    );
    expect(answer.status).toBe(201);
    expect(answer.text).not.toContain('x_');
    expectRefusal(await raw(`{${note}}`), 422);
  });

  it('with keys that mean something to JavaScript are plain data', async () => {
    const answer = await raw(
      `{"name":"a","provider":"shell","model":"shell/bash","__proto__":{"version":9,"isAdmin":true},
        "constructor":{"prototype":{"x":1}},"prototype":1,"toString":1,"valueOf":null,"hasOwnProperty":"x","then":{},
        "other":{"constructor":{"constructor":1},"__proto__":[]},
        "metadata":{"__proto__":"p","constructor":"c","toString":"t","hasOwnProperty":"h"}}`,
    );
    expect(answer.status).toBe(201);
    expect(answer.text).toContain('"__proto__":"p"');
    expect(answer.body).toMatchObject({
      version: 1,
      metadata: { constructor: 'c', toString: 't', hasOwnProperty: 'h' },
    });
    expect(answer.text).not.toContain('isAdmin');
  });

  it.each([
    '1e400',
    '-1e400',
    '9007199254740993',
    '99999999999999999999999',
    '2147483648',
    '-0',
    '1.0',
    '0.1',
  ])('with the number %s never break anything', async (number) => {
    const { body } = await service.http.post('/environments', {});
    const answer = await service.http.put(`/environments/${body.id}`, undefined, {
      raw: `{"version":${number},"name":"x"}`,
    });
    expect([200, 409, 422]).toContain(answer.status);
    if (answer.status !== 200) expectRefusal(answer, answer.status);
    expectRefusal(await raw(`{"name":${number},"metadata":{"a":${number}}}`), 422);
  });

  it('of every JSON type in every place are refused as what they are', async () => {
    const values = [
      null,
      0,
      -1.5,
      1e308,
      true,
      '',
      'x',
      [],
      [[]],
      [null],
      {},
      { a: {} },
      [{ constructor: null }],
      { length: 3 },
    ];
    const agent = [
      'name',
      'provider',
      'model',
      'system',
      'skills',
      'mcp_servers',
      'environment_id',
      'metadata',
    ];
    const environment = ['name', 'packages', 'env_vars', 'setup_script', 'networking'];
    for (const value of values) {
      for (const field of agent) {
        const answer = await service.http.post('/agents', {
          name: 'a',
          provider: 'shell',
          model: 'shell/bash',
          [field]: value,
        });
        expect([201, 400, 404, 422]).toContain(answer.status);
        if (answer.status !== 201) expectRefusal(answer, answer.status);
      }
      for (const field of environment) {
        const answer = await service.http.post('/environments', { [field]: value });
        expect([201, 422]).toContain(answer.status);
        if (answer.status !== 201) expectRefusal(answer, 422);
      }
    }
  });
});

describe('malformed texts', () => {
  const urls = [
    ...[
      'https://x.test/%E0%A4%A.git',
      'https://x.test/100%.git',
      'https://x.test/%',
      'https://%65.test/',
    ],
    ...['https:x.test/a', 'https:///a', ' https://x.test/a', 'https://x.te\nst/a', 'http://[::1/x'],
    ...['http://x:99999/', 'https://*.com/x.git', 'https://', '', 'https://u@x.test/', 'ftp://x'],
    ...[
      'https://x\\\\y/',
      'https://xn--/',
      `https://x.test/${'a'.repeat(3_000)}`,
      'https://x.test/\u0000',
    ],
  ];
  const others = [
    '',
    ' ',
    '\u0000',
    '\ud800',
    '../..',
    '-o',
    '%',
    'a\nb',
    'x'.repeat(70_000),
    '__proto__',
  ];
  const shapes = (text: string): unknown[] => [text, [text], { [text]: text }, { a: { b: text } }];
  const agent = { name: 'a', provider: 'shell', model: 'shell/bash' };
  const session = { agent_id: NOWHERE, prompt: 'x' };

  it.each(urls)('in an address are a 422: %.40j', async (url) => {
    const places: [string, object][] = [
      ['/sessions', { ...session, resources: [{ type: 'repo', url, authorization_token: 't' }] }],
      ['/agents', { ...agent, mcp_servers: [{ type: 'http', name: 'a', url }] }],
      ['/agents', { ...agent, skills: [{ type: 'git', url }] }],
    ];
    for (const [path, body] of places) expectRefusal(await service.http.post(path, body), 422);
  });

  it('are nobody else’s fault wherever they stand', async () => {
    const bodies: [string, Record<string, unknown>, string[]][] = [
      [
        '/agents',
        agent,
        [
          'name',
          'provider',
          'model',
          'system',
          'skills',
          'mcp_servers',
          'environment_id',
          'metadata',
        ],
      ],
      ['/environments', {}, ['name', 'packages', 'env_vars', 'setup_script', 'networking']],
      ['/sessions', session, ['agent_id', 'prompt', 'timeout', 'environment_id', 'resources']],
    ];
    for (const [path, body, fields] of bodies) {
      for (const field of fields) {
        for (const value of [...urls.slice(0, 6), ...others].flatMap(shapes)) {
          const answer = await service.http.post(path, { ...body, [field]: value });
          expect([201, 400, 404, 422]).toContain(answer.status);
        }
      }
    }
  });

  it.each(['a\nb', '..', '/etc', 'a/../..', '', '/', 'x'.repeat(300), '\u0000'])(
    'in a mount path are a 422: %.20j',
    async (mount_path) => {
      const resources = [{ type: 'repo', url: 'https://x.test/a', mount_path }];
      expectRefusal(await service.http.post('/sessions', { ...session, resources }), 422);
    },
  );
});

describe('paths and methods', () => {
  it.each([
    '/',
    '/nothing',
    '/agents/',
    '//agents',
    '/agents//',
    '/agents/x/y/z',
    '/AGENTS',
    '/agents/x/archive/',
    '/index.html',
    '/agents;x',
    '/%61gents/x/y',
  ])('that are not there are a 404: %s', async (path) =>
    expectRefusal(await service.http.get(path), 404),
  );

  it.each(['/agents/%zz', '/agents/%', '/%e0%a4%a', '/agents/%ff%fe'])(
    'that are malformed are refused: %s',
    async (path) => {
      const answer = await service.http.get(path);
      expect([400, 404]).toContain(answer.status);
      expectRefusal(answer, answer.status);
    },
  );

  it.each(
    [
      `/agents/${'x'.repeat(300)}`,
      `/agents/${'x'.repeat(10_000)}`,
      '/agents/%00',
      '/agents/%0d%0a',
      '/agents/..',
      '/agents/%2e%2e',
      "/agents/'; DROP TABLE agents--",
      '/agents/\u00e9',
    ].map(encodeSpaces),
  )('with ids that are none are a 404: %.60s', async (path) =>
    expectRefusal(await service.http.get(path), 404),
  );

  it('take any query', async () => {
    for (const search of [
      '?',
      '?x',
      '?__proto__=1',
      '?a[b]=c&a[b]=d',
      '?%zz',
      `?${'x'.repeat(5_000)}`,
    ]) {
      expect((await service.http.get(`/agents${search}`)).status).toBe(200);
    }
  });

  it.each<[string, string, string]>([
    ['DELETE', '/agents', 'GET, HEAD, POST'],
    ['PATCH', '/agents', 'GET, HEAD, POST'],
    ['HEAD', `/agents/${NOWHERE}/archive`, 'POST'],
    ['OPTIONS', '/agents', 'GET, HEAD, POST'],
    ['TRACE', '/agents', 'GET, HEAD, POST'],
    ['PROPFIND', '/agents', 'GET, HEAD, POST'],
    ['PATCH', `/agents/${NOWHERE}`, 'GET, HEAD, PUT'],
    ['DELETE', `/agents/${NOWHERE}`, 'GET, HEAD, PUT'],
    ['GET', `/agents/${NOWHERE}/archive`, 'POST'],
    ['POST', `/environments/${NOWHERE}/delete`, 'DELETE'],
    ['DELETE', '/environments/x', 'GET, HEAD, PUT'],
    ['POST', '/healthz', 'GET, HEAD'],
  ])('%s %s is a 405 with Allow', async (method, path, allow) => {
    const answer = await service.http.send(method, path);
    expect(answer.status).toBe(405);
    expect(answer.headers.allow).toBe(allow);
    if (method !== 'HEAD') expectRefusal(answer, 405);
  });

  it.each([
    '/healthz',
    '/readyz',
    '/openapi.json',
    '/docs',
    '/agents',
    '/environments',
    '/sessions',
  ])('HEAD %s is answered like GET, without the body', async (path) => {
    const [get, head] = [await service.http.get(path), await service.http.send('HEAD', path)];
    expect([head.status, head.text]).toEqual([200, '']);
    expect(head.headers['content-type']).toBe(get.headers['content-type']);
  });

  it('HEAD is refused like GET', async () => {
    const { id } = (await service.http.post('/environments', {})).body;
    expect((await service.http.send('HEAD', `/environments/${id}`)).status).toBe(200);
    expect((await service.http.send('HEAD', `/environments/${NOWHERE}`)).status).toBe(404);
    expect((await service.http.send('HEAD', `/sessions/${NOWHERE}/stream`)).status).toBe(404);
    expect((await service.http.send('HEAD', '/nothing')).status).toBe(404);
    const open = new HttpClient(service.url);
    expect((await open.send('HEAD', '/agents')).status).toBe(401);
  });

  it('what is created has its address in Location', async () => {
    const agent = await service.http.post('/agents', {
      name: 'a',
      provider: 'shell',
      model: 'shell/bash',
    });
    expect(agent.headers.location).toBe(`/agents/${agent.body.id}`);
    expect((await service.http.get(String(agent.headers.location))).body).toEqual(agent.body);
    const environment = await service.http.post('/environments', {});
    expect(environment.headers.location).toBe(`/environments/${environment.body.id}`);
    expect((await service.http.get('/agents')).headers.location).toBeUndefined();
  });

  it('an expectation that nobody can meet is a 417, and one that can is met', async () => {
    const refused = await service.http.get('/agents', { headers: { expect: 'zzz' } });
    expectRefusal(refused, 417);
    const text = await exchange(
      service.url,
      `POST /agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${service.token}\r\n` +
        'Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}',
    );
    expect(text).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 422 /);
  });

  it('a wrong method is one whatever the body', async () => {
    expectRefusal(await service.http.send('DELETE', '/agents', undefined, { raw: '{' }), 405);
    expectRefusal(await service.http.send('PATCH', '/agents', [1]), 405);
  });
});

describe('what is no HTTP', () => {
  it.each<[string, string, RegExp]>([
    ['words', 'hello\r\n\r\n', /^HTTP\/1\.1 400 /],
    ['an unknown method', 'BREW /agents HTTP/1.1\r\nHost: x\r\n\r\n', /^HTTP\/1\.1 (400|404|405) /],
    ['a space in the target', 'GET /a b HTTP/1.1\r\nHost: x\r\n\r\n', /^HTTP\/1\.1 400 /],
    [
      'two lengths',
      'POST /agents HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab',
      /^HTTP\/1\.1 400 /,
    ],
    [
      'a length that is none',
      'POST /agents HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n',
      /^HTTP\/1\.1 400 /,
    ],
    [
      'a chunk that is none',
      'POST /agents HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
      /^HTTP\/1\.1 (400|401) /,
    ],
    [
      'headers without an end',
      `GET /agents HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(40_000)}\r\n\r\n`,
      /^HTTP\/1\.1 431 /,
    ],
    ['no host', 'GET /agents HTTP/1.1\r\n\r\n', /^HTTP\/1\.1 400 /],
    ['two hosts', 'GET /agents HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n', /^HTTP\/1\.1 400 /],
  ])('gets an answer with detail: %s', async (_name, bytes, expected) => {
    const text = await exchange(service.url, bytes);
    expect(text).toMatch(expected);
    expect(text).toContain('"detail"');
  });
});

it('and after all of it the service is well and blames itself for nothing', async () => {
  expect((await service.http.get('/readyz')).status).toBe(200);
  expect((await service.http.get('/agents')).status).toBe(200);
  expect(service.logs()).not.toMatch(/"level":"error"| 50\d /);
});

async function fetched(body: string): Promise<{ status: number; text: string }> {
  const answer = await fetch(`${service.url}/agents`, {
    method: 'POST',
    body,
    headers: { authorization: `Bearer ${service.token}`, 'content-type': 'application/json' },
  });
  return { status: answer.status, text: await answer.text() };
}

function encodeSpaces(path: string): string {
  return path.replaceAll(' ', '%20').replaceAll('\u00e9', '%C3%A9');
}

async function exchange(url: string, bytes: string): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    let text = '';
    const socket = connect(Number(port), hostname, () => socket.write(bytes));
    const timer = setTimeout(
      () => socket.destroy(new Error(`no end of the answer: ${text}`)),
      10_000,
    );
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
      if (text.includes('"detail"') && text.trimEnd().endsWith('}')) socket.end();
    });
    socket.on('error', reject);
    socket.on('close', () => {
      clearTimeout(timer);
      resolve(text);
    });
  });
}
