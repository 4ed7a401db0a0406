import { startSourceService } from '../lib/subjects.mjs';

export const title = "Purging a day's log";
export const metrics = { wal: 'WAL, MB', ms: 'ms', freed: 'MB given back to the disk' };
export const goals = [{ label: "WAL of purging a day's log, MB", metric: 'wal', atMost: 1 }];

/**
 * Runs the purge of the nightly maintenance, with the same method of the built service, on a day that is past
 * retention.
 */
export async function open({ tiny }) {
  const events = tiny ? 2_000 : 100_000;
  const service = await startSourceService();
  const id = await service.source(events, { free: true });
  await service.until(id, 'completed');
  const query = async (text) => (await service.database.query(text)).rows;
  let day = 0;
  const contenders = {
    service: async () => {
      day += 1;
      const date = `2020010${day}`;
      await query(`CREATE TABLE event_log_${date} (LIKE event_log INCLUDING ALL)`);
      await query(
        `ALTER TABLE event_log ATTACH PARTITION event_log_${date} FOR VALUES
         FROM ('2020-01-0${day} 00:00:00+00') TO ('2020-01-0${day + 1} 00:00:00+00')`,
      );
      const columns = (
        await query(`SELECT attname FROM pg_attribute WHERE attrelid = 'event_log'::regclass
                     AND attnum > 0 AND NOT attisdropped ORDER BY attnum`)
      ).map(({ attname }) => attname);
      const values = columns.map((name) =>
        name === 'created_at' ? `timestamptz '2020-01-0${day} 12:00:00+00'` : name,
      );
      await query(
        `INSERT INTO event_log (${columns.join(', ')}) SELECT ${values.join(', ')} FROM event_log
         WHERE session_id = '${id}' AND created_at > now() - interval '2 days'`,
      );
      await query('CHECKPOINT');
      const [{ size }] = await query(
        `SELECT pg_total_relation_size('event_log_${date}')::float8 AS size`,
      );
      const [{ lsn }] = await query('SELECT pg_current_wal_insert_lsn() AS lsn');
      const begun = performance.now();
      const dropped = await service.purge();
      const ms = performance.now() - begun;
      const [{ wal }] = await query(
        `SELECT (pg_current_wal_insert_lsn() - '${lsn}'::pg_lsn)::float8 AS wal`,
      );
      if (!dropped.includes(`event_log_${date}`)) throw new Error('the day was not purged');
      return { wal: wal / 1e6, ms, freed: size / 1e6 };
    },
  };
  return { contenders, close: () => service.stop() };
}
