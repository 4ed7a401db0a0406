import { expect, it } from '@jest/globals';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { askForUsage } from './usage-request.js';

type Api = Parameters<typeof askForUsage>[0];

async function sent(body: string, size = body.length, api: Api = 'chat'): Promise<string> {
  const bytes = Buffer.from(body);
  const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
    bytes.subarray(i * size, (i + 1) * size),
  );
  return text(Readable.from(chunks).pipe(askForUsage(api)));
}

it.each([
  '{"model":"m","stream":true,"messages":[{"content":"}} \\"stream\\":false"}]}',
  '{"stream":true,"stream_options":{"include_usage":false},"a":{"b":{}}}\n ',
  `{"stream":true}${' '.repeat(10_000)}\n`,
  '{"stream":true,"stream_options":{"include_usage":true},"stream_options":null}',
  '{"stream":true,"stream_options":{"include_usage":true},"stream_options":{}}',
  '{"stream":true,"stream_options":{"include_usage":true},"stream_options":[true]}',
  `{"stream":true,"messages":[{"content":"}${' '.repeat(10_000)}}"}]}`,
])('asks for usage in %s', async (body) => {
  for (const size of [body.length, 5, 1]) {
    const result = JSON.parse(await sent(body, size)) as Record<string, unknown>;
    const wanted = { ...(JSON.parse(body) as object), stream_options: { include_usage: true } };
    expect(result).toEqual(wanted);
  }
});

it.each([
  '{"model":"m","stream":false}',
  '{"model":"m","metadata":{"stream":true}}',
  '{"stream":true,"stream_options":{"include_usage":true}}',
  '{"stream":true,"messages":[{"content":"cut}',
  'not JSON',
])('leaves %s as it is', async (body) => {
  for (const size of [body.length, 5, 1]) expect(await sent(body, size)).toBe(body);
});

it('lets no response go on in the background', async () => {
  const body = '{"model":"m","background":true,"input":"hi"} ';
  for (const size of [body.length, 5, 1]) {
    const wanted = { model: 'm', background: false, input: 'hi' };
    expect(JSON.parse(await sent(body, size, 'responses'))).toEqual(wanted);
  }
  const other = '{"stream":true,"background":false}';
  expect(await sent(other, 7, 'responses')).toBe(other);
});
