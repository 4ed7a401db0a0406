import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { HttpClient } from '../support/http-client.js';
import { type Service, startService } from '../support/service.js';

interface Document {
  servers: { url: string }[];
  paths: Record<string, object>;
}

const read = (file: string) =>
  JSON.parse(readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')) as Document;
const committed = read('openapi.json');

describe('with the default configuration', () => {
  let service: Service;
  let nobody: HttpClient;
  beforeAll(async () => {
    service = await startService({ env: { APP_ROLE: 'api' } });
    nobody = new HttpClient(service.url);
  });
  afterAll(() => service.stop());

  it.each(['openapi.json', 'openapi-3.0.json'])(
    '%s is served to anybody, and is the committed one',
    async (file) => {
      const answer = await nobody.get(`/${file}`);
      expect(answer.status).toBe(200);
      expect(answer.headers['content-type']).toBe('application/json; charset=utf-8');
      expect(answer.body).toEqual(read(file));
    },
  );

  it('the page is served to anybody, with all that it loads, from here', async () => {
    const page = await nobody.get('/docs');
    expect([page.status, page.headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
    const links = [...page.text.matchAll(/(?:href|src)="([^"]+)"/g)].map(([, link = '']) => link);
    expect(links.length).toBeGreaterThanOrEqual(3);
    for (const link of links) {
      expect(link).toMatch(/^docs\//);
      const asset = await nobody.get(`/${link}`);
      expect([link, asset.status, asset.text.length > 0]).toEqual([link, 200, true]);
    }
    expect((await nobody.get('/docs/page.js')).text).toContain("url: 'openapi.json'");
  });

  it('no other file is', async () => {
    for (const path of ['/docs/package.json', '/docs/..%2f..%2fpackage.json', '/docs/index.html']) {
      const { status, body } = await nobody.get(path);
      expect([path, status, body]).toEqual([path, 404, { detail: 'Not found' }]);
    }
  });
});

describe('with API_PREFIX and PUBLIC_URL', () => {
  let service: Service;
  beforeAll(async () => {
    service = await startService({
      env: {
        APP_ROLE: 'api',
        API_PREFIX: '/v1',
        PUBLIC_URL: 'https://agents.example.com/service/',
      },
    });
  });
  afterAll(() => service.stop());

  it('the document has the addresses that clients call, and stays where it is', async () => {
    const { status, body } = await new HttpClient(service.url).get('/openapi.json');
    expect(status).toBe(200);
    const { servers, paths } = body as object as Document;
    expect(servers.map(({ url }) => url)).toEqual(['https://agents.example.com/service']);
    const open = new Set(['/healthz', '/readyz', '/openapi.json', '/openapi-3.0.json']);
    const expected = Object.keys(committed.paths).map((path) =>
      open.has(path) ? path : `/v1${path}`,
    );
    expect(Object.keys(paths).sort()).toEqual(expected.sort());
    for (const path of ['/docs', '/docs/page.js', '/healthz']) {
      expect((await service.http.get(path)).status).toBe(200);
    }
    expect((await service.http.get('/v1/agents')).status).toBe(200);
    expect((await service.http.get('/agents')).status).toBe(404);
  });
});
