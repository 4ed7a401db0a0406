import { setTimeout as delay } from 'node:timers/promises';
import { randomBytes } from 'node:crypto';
import { Client } from 'pg';
import * as migrations from '../../../migrations/index.js';
import { LogPartitions } from '../../event-log/log-partitions.js';
import { readDataFolder, mismatchOf, findInstallation } from '../../database/installation.js';
import type { OperatorDatabase } from '../operator-database.js';
import { duration } from '../command-line.js';
import { diagnose, type Diagnosis, fail, type Finding, ok, warn } from './finding.js';

const OLDEST_MAJOR = 13;
const OLDEST_TESTED_MAJOR = 15;
const SLOW_MS = 50;
const NOTIFICATION_LIMIT_MS = 3_000;
const CLOCK_WARN_MS = 2_000;
const CLOCK_FAIL_MS = 30_000;
const QUEUE_WARN_MS = 60_000;
/** The connection for LISTEN, which each process has in addition to its pool. */
const LISTENERS = 1;
/** Connections for operators, backups and monitoring. */
const SPARE_CONNECTIONS = 5;

const VERSION = { name: '', text: `SELECT current_setting('server_version_num')::int AS number` };
const APPLIED = { name: '', text: 'SELECT name FROM migrations' };
const MIGRATED = { name: '', text: `SELECT to_regclass('migrations') AS found` };
const CONNECTIONS = {
  name: '',
  text: `
    SELECT current_setting('max_connections')::int AS most,
      current_setting('superuser_reserved_connections')::int
        + coalesce(current_setting('reserved_connections', true)::int, 0) AS reserved,
      (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
      (SELECT count(*)::int FROM pg_stat_activity
       WHERE application_name = 'agent-session-service listener' AND datname = current_database())
        AS processes`,
};
const NOW = {
  name: '',
  text: 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now',
};
const WORKERS = {
  name: '',
  text: `SELECT host, driver, problem FROM workers WHERE seen_at > now() - interval '1 minute'`,
};
const QUEUE = {
  name: '',
  text: `
    SELECT count(*)::int AS waiting,
      coalesce(max(extract(epoch FROM now() - created_at)) * 1000, 0)::float8 AS oldest_ms
    FROM turns WHERE status = 'pending'`,
};

/** Runs all checks of the database that change nothing. */
export async function checkDatabase(database: OperatorDatabase): Promise<Finding[]> {
  const { sql, config } = database;
  const first = await diagnose('database', () => checkServer(database), 'see the message');
  if (first.verdict === 'fail') return [first];
  const schema = await diagnose('migrations', () => checkMigrations(database));
  const rest: Promise<Finding>[] = [
    diagnose('installation', () => checkInstallation(database)),
    diagnose('connections', () => checkConnections(database)),
    diagnose('notifications', () => checkNotifications(database)),
    diagnose('clock', () => checkClock(database)),
  ];
  if (schema.verdict !== 'fail') {
    rest.push(
      diagnose('partitions', () => checkPartitions(new LogPartitions(sql, config))),
      diagnose('workers', () => checkWorkers(database)),
      diagnose('queue', () => checkQueue(database)),
    );
  }
  return [first, schema, ...(await Promise.all(rest))];
}

async function checkServer({ sql }: OperatorDatabase): Promise<Diagnosis> {
  await sql.query(VERSION);
  const before = performance.now();
  const [row] = await sql.query<{ number: number }>(VERSION);
  const took = performance.now() - before;
  const number = row?.number ?? 0;
  const version = `PostgreSQL ${Math.floor(number / 10_000)}.${number % 10_000}`;
  const said = `${version} answers in ${took.toFixed(1)} ms`;
  if (number < OLDEST_MAJOR * 10_000) {
    return fail(said, `upgrade it to ${OLDEST_TESTED_MAJOR} or later`);
  }
  if (number < OLDEST_TESTED_MAJOR * 10_000) {
    return warn(said, `the service is tested with ${OLDEST_TESTED_MAJOR} and later; upgrade it`);
  }
  if (took > SLOW_MS) {
    return warn(
      said,
      'every write of output takes this long: run the service close to its database',
    );
  }
  return ok(said);
}

async function checkMigrations({ sql }: OperatorDatabase): Promise<Diagnosis> {
  const [table] = await sql.query<{ found: string | null }>(MIGRATED);
  if (table?.found == null) {
    return fail('The database is empty', 'start the service once: it creates the schema');
  }
  const applied = new Set((await sql.query<{ name: string }>(APPLIED)).map(({ name }) => name));
  const ours = Object.keys(migrations);
  const pending = ours.filter((name) => !applied.has(name));
  const foreign = [...applied].filter((name) => !ours.includes(name));
  if (pending.length > 0) {
    return fail(
      `${pending.length} of ${ours.length} migrations have not run: ${pending.join(', ')}`,
      'start a process of this version, which runs them',
    );
  }
  if (foreign.length > 0) {
    return warn(
      `The database was migrated by a newer version: ${foreign.join(', ')}`,
      'this is fine during an upgrade; otherwise run this command from the version that is deployed',
    );
  }
  return ok(`All ${ours.length} migrations have run`);
}

async function checkConnections({ sql, config }: OperatorDatabase): Promise<Diagnosis> {
  const [row] = await sql.query<{
    most: number;
    reserved: number;
    used: number;
    processes: number;
  }>(CONNECTIONS);
  const { most = 0, reserved = 0, used = 0, processes = 0 } = row ?? {};
  const usable = most - reserved;
  const each = config.databasePoolSize + LISTENERS;
  const needed = processes * each + SPARE_CONNECTIONS;
  const said = `${used} of ${usable} connections are in use; ${processes} processes use up to ${each} each`;
  if (needed > usable) {
    return fail(said, `raise max_connections to ${needed + reserved}, or lower DATABASE_POOL_SIZE`);
  }
  if (used > usable * 0.9)
    return warn(said, 'find out which other clients use the server, or raise max_connections');
  return ok(said);
}

async function checkNotifications({ sql, url }: OperatorDatabase): Promise<Diagnosis> {
  const channel = `doctor_${randomBytes(6).toString('hex')}`;
  const client = new Client({
    connectionString: url,
    application_name: 'agent-session-service doctor',
  });
  await client.connect();
  const ended = new AbortController();
  try {
    const heard = new Promise<boolean>((resolve) => {
      client.once('notification', () => resolve(true));
    });
    await client.query(`LISTEN ${channel}`);
    const before = performance.now();
    await sql.query({ name: '', text: `SELECT pg_notify('${channel}', '')` });
    const limit = delay(NOTIFICATION_LIMIT_MS, false, { signal: ended.signal }).catch(() => false);
    if (await Promise.race([heard, limit])) {
      return ok(`A notification arrives after ${(performance.now() - before).toFixed(1)} ms`);
    }
    return fail(
      'Notifications do not arrive',
      'DATABASE_URL must point to PostgreSQL itself or to a pooler in session mode: without notifications, events are seconds late',
    );
  } finally {
    ended.abort();
    await client.end();
  }
}

async function checkClock({ sql }: OperatorDatabase): Promise<Diagnosis> {
  // The query with the shortest round trip gives the best estimate, because the network delay is unknown.
  let best = { took: Infinity, ahead: 0 };
  for (let count = 0; count < 5; count += 1) {
    const before = Date.now();
    const [row] = await sql.query<{ now: number }>(NOW);
    const took = Date.now() - before;
    if (took < best.took) best = { took, ahead: before + took / 2 - (row?.now ?? 0) };
  }
  const { ahead } = best;
  const by = Math.abs(ahead);
  const said = `This clock is ${duration(by)} ${ahead < 0 ? 'behind' : 'ahead of'} the database's`;
  const advice =
    'synchronise both clocks by NTP: the expiry of tokens uses one clock and the timeout of turns the other';
  if (by > CLOCK_FAIL_MS) return fail(said, advice);
  return by > CLOCK_WARN_MS ? warn(said, advice) : ok(said);
}

async function checkPartitions(partitions: LogPartitions): Promise<Diagnosis> {
  const { missing, expired } = await partitions.survey();
  if (missing.length > 0) {
    return fail(
      `The log has no partition for ${missing.length} of the next days: ${missing.join(', ')}`,
      'output of those days cannot be stored: a running service creates partitions at its start and every hour at :17; its log says why that fails',
    );
  }
  if (expired.length > 0) {
    return warn(
      `${expired.length} days are past retention but were not dropped`,
      'run `logs purge`; if it could not get a lock, find the long transaction that holds it',
    );
  }
  return ok('The log has partitions for the next days and none past retention');
}

async function checkWorkers({ sql }: OperatorDatabase): Promise<Diagnosis> {
  const workers = await sql.query<{ host: string | null; driver: string; problem: string | null }>(
    WORKERS,
  );
  const broken = workers.filter(({ problem }) => problem !== null);
  const said = `${workers.length} workers sent a heartbeat in the last minute`;
  const why = broken[0] ? `${broken.length} cannot create sandboxes: ${broken[0].problem}` : '';
  if (workers.length === 0)
    return warn(said, 'turns wait until a process with the role all or worker runs');
  if (broken.length === workers.length) return fail(`${said}; ${why}`, 'run doctor on their host');
  return broken.length > 0 ? warn(`${said}; ${why}`, 'run doctor on that host') : ok(said);
}

async function checkQueue({ sql }: OperatorDatabase): Promise<Diagnosis> {
  const [row] = await sql.query<{ waiting: number; oldest_ms: number }>(QUEUE);
  const { waiting = 0, oldest_ms: oldest = 0 } = row ?? {};
  if (waiting === 0) return ok('No turn waits for a worker');
  const said = `${waiting} turns wait for a worker, the oldest for ${duration(oldest)}`;
  return oldest > QUEUE_WARN_MS
    ? warn(
        said,
        'add workers or raise WORKER_CONCURRENCY; a second or later turn waits for the host of its sandbox',
      )
    : ok(said);
}

/** Checks that the database and the data folder belong to the same installation. */
async function checkInstallation({ sql, config }: OperatorDatabase): Promise<Diagnosis> {
  const record = await findInstallation(sql);
  if (record === undefined)
    return ok('The database is new: the first start gives it an installation id');
  const folder = await readDataFolder(config.dataDir);
  const problem = await mismatchOf(sql, record, folder, config.dataDir);
  return problem === undefined
    ? ok(`The database and DATA_DIR are installation ${record.id}`)
    : fail(problem, 'no service starts with this combination until this is fixed');
}
