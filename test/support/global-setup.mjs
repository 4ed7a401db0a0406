import { existsSync } from 'node:fs';
import { mkdtemp, realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { beginTestRun } from '../../scripts/lib/test-run.mjs';

const BUILD = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'dist', 'src', 'database');

/** One PostgreSQL for the whole run, from the build, with a migrated database to copy from. */
export default async function globalSetup() {
  if (!existsSync(join(BUILD, 'migrate.js')))
    throw new Error('the integration tests use the build: run npm run build first');
  const load = (file) => import(pathToFileURL(join(BUILD, file)).href);
  const { startEmbeddedPostgres } = await load('embedded/embedded-postgres.js');
  const { migrate } = await load('migrate.js');
  const endTestRun = beginTestRun();
  const dataDir = await realpath(await mkdtemp(join(process.env.TEST_MEMORY, 'test-postgres-')));
  const server = await startEmbeddedPostgres({
    dataDir,
    log: (line) => process.stderr.write(`${line}\n`),
    durability: 'none',
  });
  globalThis.testPostgres = { dataDir, server, endTestRun };
  process.env.TEST_POSTGRES_URL = server.url;
  await createTemplate(server.url, migrate);
}

async function createTemplate(url, migrate) {
  const { Client } = await import('pg');
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await client.query('CREATE DATABASE template_ass');
    const template = new URL(url);
    template.pathname = '/template_ass';
    await migrate(template.href);
    // A template that somebody is connected to cannot be copied.
    await client.query('ALTER DATABASE template_ass ALLOW_CONNECTIONS false');
  } finally {
    await client.end();
  }
}
