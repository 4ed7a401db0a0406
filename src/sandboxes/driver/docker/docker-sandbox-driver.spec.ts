import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { DockerSandboxDriver } from './docker-sandbox-driver.js';
import type { DockerSandboxOptions } from './options.js';

test('a slow engine is asked once where it keeps things, and each waits for as long as it can', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'engine-'));
  const asked: ServerResponse[] = [];
  const begun = Promise.withResolvers<void>();
  const engine = createServer((_request, response) => {
    asked.push(response);
    begun.resolve();
  });
  engine.listen(join(folder, 'socket'));
  const driver = new DockerSandboxDriver({
    engine: { host: `unix://${join(folder, 'socket')}` },
    installation: async () => 'test',
    gatewayConfig: { grantKeys: [], trusted: [] },
  } as Partial<DockerSandboxOptions> as DockerSandboxOptions);
  const hasty = new AbortController();
  const first = driver.storage({ signal: hasty.signal });
  const second = driver.storage({ signal: new AbortController().signal });
  await begun.promise;
  hasty.abort();
  await expect(first).rejects.toMatchObject({ kind: 'unavailable' });
  for (const answer of asked) {
    answer.setHeader('Content-Type', 'application/json').end('{"DockerRootDir":"/engine"}');
  }
  expect(await second).toEqual(['/engine']);
  expect(asked).toHaveLength(1);
  engine.close();
  await rm(folder, { recursive: true });
});
