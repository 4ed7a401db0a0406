import { rm } from 'node:fs/promises';

/** Stops the run's PostgreSQL; a database that a test did not drop is a failure. */
export default async function globalTeardown() {
  const { dataDir, server, endTestRun } = globalThis.testPostgres;
  try {
    const left = await leftDatabases(server.url);
    // An error here would keep Jest from writing its results.
    if (left.length > 0) {
      process.stderr.write(`FAILED: tests left databases behind: ${left.join(', ')}\n`);
      process.exitCode = 1;
    }
  } finally {
    await server.stop();
    await rm(dataDir, { recursive: true, force: true });
    endTestRun();
  }
}

async function leftDatabases(url) {
  const { Client } = await import('pg');
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query(
      `SELECT datname FROM pg_database WHERE datname LIKE 'test\\_%'`,
    );
    return rows.map(({ datname }) => datname);
  } finally {
    await client.end();
  }
}
