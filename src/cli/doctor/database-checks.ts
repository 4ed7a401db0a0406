import { setTimeout as delay } from 'node:timers/promises';
import { randomBytes } from 'node:crypto';
import { Client } from 'pg';
import * as migrations from '../../../migrations/index.js';
import { LogPartitions } from '../../event-log/log-partitions.js';
import type { OperatorDatabase } from '../operator-database.js';
import { duration } from '../output.js';
import { diagnose, type Diagnosis, fail, type Finding, ok, warn } from './finding.js';

const OLDEST_MAJOR = 13;
const OLDEST_TESTED_MAJOR = 15;
const SLOW_MS = 50;
const NOTIFICATION_LIMIT_MS = 3_000;
const CLOCK_WARN_MS = 2_000;
const CLOCK_FAIL_MS = 30_000;
const QUEUE_WARN_MS = 60_000;
/** Beside the pool, each process listens for notifications. */
const LISTENERS = 1;
/** For operators, backups and monitoring. */
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

/** Everything about the database that can be looked at without changing it. */
export async function checkDatabase(database: OperatorDatabase): Promise<Finding[]> {
  const { sql, config } = database;
  const first = await diagnose('database', () => checkServer(database), 'see the message');
  if (first.verdict === 'fail') return [first];
  const schema = await diagnose('migrations', () => checkMigrations(database));
  const rest: Promise<Finding>[] = [
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
      'every piece of output waits for it: put the service and its database close to each other',
    );
  }
  return ok(said);
}

async function checkMigrations({ sql }: OperatorDatabase): Promise<Diagnosis> {
  const [table] = await sql.query<{ found: string | null }>(MIGRATED);
  if (table?.found == null) {
    return fail('The database is empty', 'start the service once: it makes the schema');
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
      `The database is of a newer version: ${foreign.join(', ')}`,
      'fine during an upgrade; else run this command from the version that serves',
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
  const said = `${used} of ${usable} connections are used; ${processes} processes take up to ${each} each`;
  if (needed > usable) {
    return fail(said, `raise max_connections to ${needed + reserved}, or lower DATABASE_POOL_SIZE`);
  }
  if (used > usable * 0.9)
    return warn(said, 'find out who else uses the server, or raise max_connections');
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
      'DATABASE_URL must lead to PostgreSQL itself or to a pooler in session mode: without them events are seconds late',
    );
  } finally {
    ended.abort();
    await client.end();
  }
}

async function checkClock({ sql }: OperatorDatabase): Promise<Diagnosis> {
  // Of several answers the quickest says it best: how long the way there took is not known.
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
  const advice = 'synchronise both by NTP: tokens expire by one clock, and turns end by the other';
  if (by > CLOCK_FAIL_MS) return fail(said, advice);
  return by > CLOCK_WARN_MS ? warn(said, advice) : ok(said);
}

async function checkPartitions(partitions: LogPartitions): Promise<Diagnosis> {
  const { missing, expired } = await partitions.survey();
  if (missing.length > 0) {
    return fail(
      `The log has no partition for ${missing.length} of the next days: ${missing.join(', ')}`,
      'output of those days cannot be stored: a running service makes them every hour at :17, and at its start; see its log for why it does not',
    );
  }
  if (expired.length > 0) {
    return warn(
      `${expired.length} days are past retention and not dropped`,
      'run `logs purge`; if it says that a lock was not to be had, find the long transaction that holds it',
    );
  }
  return ok('The log has its partitions for the days to come, and none past retention');
}

async function checkWorkers({ sql }: OperatorDatabase): Promise<Diagnosis> {
  const workers = await sql.query<{ host: string | null; driver: string; problem: string | null }>(
    WORKERS,
  );
  const broken = workers.filter(({ problem }) => problem !== null);
  const said = `${workers.length} workers were heard of in the last minute`;
  const why = broken[0] ? `${broken.length} cannot make sandboxes: ${broken[0].problem}` : '';
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
        'add workers or raise WORKER_CONCURRENCY; a further turn waits for the host of its sandbox',
      )
    : ok(said);
}
