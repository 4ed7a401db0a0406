import { buffer } from 'node:stream/consumers';
import { expect, it } from '@jest/globals';
import { EndpointRewriter } from './endpoint-rewriter.js';

async function rewritten(text: string, chunkBytes = text.length): Promise<string> {
  const rewriter = new EndpointRewriter((address) => `/own${address}`);
  const result = buffer(rewriter);
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += chunkBytes)
    rewriter.write(bytes.subarray(at, at + chunkBytes));
  rewriter.end();
  return (await result).toString();
}

const BEFORE = ': hello ü\n\nevent: other\ndata: /a\n\n';
const AFTER = '\nevent: endpoint\ndata: /second\n\nevent: message\ndata: {"ü":1}\n\n';

it.each(['\n', '\r\n'])(
  'replaces the first endpoint, whatever the chunks are (%j)',
  async (line) => {
    const lines = (text: string) => text.replaceAll('\n', line);
    const text = lines(`${BEFORE}event: endpoint\ndata: /first?ü\n${AFTER}`);
    const wanted = lines(`${BEFORE}event: endpoint\ndata: /own/first?ü\n${AFTER}`);
    for (const chunkBytes of [1, 2, 3, 7, 1000])
      expect(await rewritten(text, chunkBytes)).toBe(wanted);
  },
);

it.each(['', 'event: endpoint', 'event: endpoint\ndata: /cut', 'data: /x\n\n'])(
  'passes %j on',
  async (text) => {
    expect(await rewritten(text)).toBe(text);
  },
);

it('passes a long stream without an endpoint on, byte by byte', async () => {
  const text = 'x'.repeat(100_000);
  expect(await rewritten(text, 1)).toBe(text);
});

it('does not hold a stream back beyond the searched bytes', () => {
  const rewriter = new EndpointRewriter((address) => address);
  rewriter.write(Buffer.alloc(64 * 1024 + 1, 'x'));
  expect(rewriter.readableLength).toBe(64 * 1024 + 1);
});
