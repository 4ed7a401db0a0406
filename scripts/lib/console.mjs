import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { ROOT } from './paths.mjs';
import { NODE, StepError } from './step.mjs';

const BUILD_TIMEOUT_MS = 3 * 60_000;

/** What the first page may load, compressed. Everybody waits for it, also on a slow line. */
const FIRST_LOAD_BYTES = 200 * 1024;

/** Builds the web console into dist/console. @throws StepError also where the first page has become too large. */
export function buildConsole() {
  run(join('node_modules', 'vite', 'bin', 'vite.js'), [
    'build',
    '--config',
    join('console', 'vite.config.ts'),
    '--logLevel',
    'warn',
  ]);
  checkFirstLoad(join(ROOT, 'dist', 'console'));
}

/**
 * Checks the size of what the first page loads: itself, the files that it names, and what these import at once. Files
 * that are imported on demand, such as the terminal, are not among them.
 * @param folder the built console
 * @returns the bytes after gzip, which every client understands
 * @throws StepError if there are more, with the files by size
 */
export function checkFirstLoad(folder) {
  const sizes = new Map();
  const add = (name) => {
    if (sizes.has(name)) return;
    const bytes = readFileSync(join(folder, name));
    sizes.set(name, gzipSync(bytes).length);
    if (!/\.(html|js)$/.test(name)) return;
    const text = bytes.toString();
    // On demand is `import("./file")`; at once is `import "./file"` and `from "./file"`.
    const names = name.endsWith('.html')
      ? text.matchAll(/(?:src|href)="\.\/(assets\/[^"]+)"/g)
      : text.matchAll(/(?:from|import)\s*["']\.\/([^"']+)["']/g);
    for (const [, one] of names) add(name.endsWith('.html') ? one : `assets/${one}`);
  };
  add('index.html');
  const total = [...sizes.values()].reduce((sum, size) => sum + size, 0);
  if (total <= FIRST_LOAD_BYTES) return total;
  const lines = [...sizes]
    .toSorted(([, a], [, b]) => b - a)
    .map(([name, size]) => `  ${size} ${name}`);
  throw new StepError(
    `The console's first page loads ${total} bytes, compressed; at most ${FIRST_LOAD_BYTES}:\n${lines.join('\n')}`,
  );
}

/** Writes the types of the console's client, from the OpenAPI document. */
export function writeClient() {
  run(join('node_modules', 'openapi-typescript', 'bin', 'cli.js'), [
    'openapi.json',
    '--output',
    join('console', 'src', 'api', 'schema.d.ts'),
  ]);
}

function run(program, args) {
  const { status, signal, stdout, stderr } = spawnSync(NODE, [program, ...args], {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: BUILD_TIMEOUT_MS,
  });
  if (status !== 0)
    throw new StepError(
      `Building the console failed (${signal ?? status}):\n${stdout ?? ''}${stderr ?? ''}`,
    );
}
