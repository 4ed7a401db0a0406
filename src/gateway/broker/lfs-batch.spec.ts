import { text } from 'node:stream/consumers';
import { expect, it } from '@jest/globals';
import { LfsBatchRewriter } from './lfs-batch.js';

const SECRET = 'Basic a/b+c/d==';
const OWN = 'https://git.example/team/app.git/info/lfs/objects/1';

async function rewritten(body: string): Promise<string> {
  const rewriter = new LfsBatchRewriter({
    repository: new URL('https://git.example/team/app.git'),
    gateway: 'http://127.0.0.1',
    secret: SECRET,
    replacement: 'Basic grant',
  });
  rewriter.end(body);
  return text(rewriter);
}

it('sends objects of the repository through the gateway, with the grant', async () => {
  const action = { href: OWN, header: { Authorization: SECRET } };
  const body = await rewritten(JSON.stringify({ objects: [{ actions: { download: action } }] }));
  expect(JSON.parse(body)).toEqual({
    objects: [
      {
        actions: {
          download: {
            href: 'http://127.0.0.1/git/https:git.example/team/app.git/info/lfs/objects/1',
            header: { Authorization: 'Basic grant' },
          },
        },
      },
    ],
  });
});

it.each([
  ['an object without actions', '{"actions":null}'],
  ['an object that is null', 'null'],
  ['an action that is null', '{"actions":{"download":null}}'],
  [
    'a header that is null',
    '{"actions":{"download":{"href":"https://cdn.example/","header":null}}}',
  ],
])('rewrites the other objects beside %s', async (_, odd) => {
  const escaped = SECRET.replaceAll('/', '\\/');
  const action = `{"href":"${OWN}","header":{"Authorization":"${escaped}"}}`;
  const body = await rewritten(`{"objects":[${odd},{"actions":{"download":${action}}}]}`);
  expect(body).not.toContain('a\\/b');
  expect(body).toContain('http://127.0.0.1/git/https:git.example/');
});

it.each(['null', '[]', '{"objects":{}}', '{"objects":"x"}', 'not JSON'])(
  'passes %s on',
  async (body) => {
    expect(await rewritten(body)).toBe(body);
  },
);

it('removes the token from text that is not JSON, also with escaped slashes', async () => {
  const body = `{"message": "${SECRET}", "${SECRET.replaceAll('/', '\\/')}"`;
  expect(await rewritten(body)).toBe('{"message": "Basic grant", "Basic grant"');
});
