import { readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire, isBuiltin } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { extract } from 'tar-stream';
import { RuntimeBundle } from '../../../src/sandboxes/driver/docker/runtime-bundle.js';

/** What our modules import, and what those of packages require: their comments have imports of types. */
const IMPORT = /(?:^(?:import|export)\b[^'"]*\bfrom\s*|^import\s*|\bimport\(\s*)'([^']+)'/gm;
const REQUIRE = /\brequire\('([^']+)'\)/g;

let folder: string;
const bundled = new Set<string>();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'bundle-'));
  for await (const entry of new RuntimeBundle().archive().pipe(extract())) {
    const path = join(folder, entry.header.name);
    if (!/\.(?:[cm]?js|json)$/.test(path)) {
      entry.resume();
      continue;
    }
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, await buffer(entry));
    bundled.add(path);
  }
});

afterAll(() => rm(folder, { recursive: true }));

/** Everything that a program imports, as Node finds it in the bundle, and what it does not find. */
function importsOf(program: string): { found: Set<string>; missing: string[] } {
  const found = new Set([program]);
  const missing: string[] = [];
  for (const path of found) {
    const pattern = path.includes('/node_modules/') ? REQUIRE : IMPORT;
    for (const [, name = ''] of readFileSync(path, 'utf8').matchAll(pattern)) {
      if (isBuiltin(name)) continue;
      try {
        found.add(createRequire(path).resolve(name));
      } catch {
        missing.push(`${name} of ${path.slice(folder.length)}`);
      }
    }
  }
  return { found, missing };
}

test.each([
  ['sandboxes/driver/docker/inside/relay.js', 'node_modules/dns-packet/'],
  ['sandboxes/driver/docker/inside/relay.js', 'gateway/'],
  ['supervisor/main.js', 'supervisor/'],
  ['supervisor/serve.js', 'supervisor/'],
])('%s has everything that it imports', (name, library) => {
  const program = [...bundled].find((path) => path.endsWith(`/dist/src/${name}`)) ?? '';
  const { found, missing } = importsOf(program);
  expect(missing).toEqual([]);
  expect([...found].filter((path) => !bundled.has(path))).toEqual([]);
  expect([...found].filter((path) => path.includes(library)).length).toBeGreaterThan(2);
});

test('all other programs have everything that they import', () => {
  const programs = [...bundled].filter((path) => path.includes('/dist/src/'));
  expect(programs.length).toBeGreaterThan(50);
  expect(programs.flatMap((path) => importsOf(path).missing)).toEqual([]);
});
