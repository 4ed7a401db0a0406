import { setTimeout as delay } from 'node:timers/promises';
import { cpuMeter } from '../lib/processes.mjs';
import { startSourceService } from '../lib/subjects.mjs';

export const title = 'Ingest: 50 running turns, committed by one worker';
export const metrics = {
  rate: 'events a second',
  cpu: 'service CPU per event, µs',
  databaseCpu: 'database CPU per event, µs',
  bytes: 'database bytes per event',
};
export const goals = [{ label: 'events committed a second', metric: 'rate', atLeast: 100_000 }];

/**
 * Each turn writes as fast as its output is consumed. This includes reading, decoding, redacting, committing and
 * notifying.
 */
export async function open({ tiny, profile }) {
  const turns = tiny ? 4 : 50;
  const each = tiny ? 200 : 6_000;
  const service = await startSourceService({ profile });
  const size = async () => {
    const { rows } = await service.database.query(
      `SELECT sum(pg_total_relation_size(inhrelid))::float8 AS bytes FROM pg_inherits
       WHERE inhparent = 'event_log'::regclass`,
    );
    return rows[0].bytes;
  };
  const ended = async (ids) => {
    const { rows } = await service.database.query(
      `SELECT count(*)::int AS ended FROM turns WHERE session_id = ANY ($1) AND status = 'completed'`,
      [ids],
    );
    return rows[0].ended;
  };

  const contenders = {
    service: async () => {
      const before = await size();
      await service.allow(0);
      const ids = [];
      for (let at = 0; at < turns; at += 1) ids.push(await service.source(each));
      for (const id of ids) await service.until(id, 'running');
      const database = cpuMeter(service.pids().filter((pid) => pid !== service.pid));
      const cpu = cpuMeter([service.pid]);
      const begun = performance.now();
      await service.allow(each);
      while ((await ended(ids)) < turns) await delay(10);
      const ms = performance.now() - begun;
      const [serviceMs, databaseMs] = [cpu(), database()];
      const events = turns * each;
      return {
        rate: (events * 1000) / ms,
        cpu: (serviceMs * 1000) / events,
        databaseCpu: (databaseMs * 1000) / events,
        bytes: ((await size()) - before) / events,
      };
    },
  };
  return { contenders, close: () => service.stop() };
}
