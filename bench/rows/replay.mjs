import { spawnSync } from 'node:child_process';
import { cpuMeter } from '../lib/processes.mjs';
import { startReader, startSourceService } from '../lib/subjects.mjs';
import { psql } from '../references/postgres.mjs';

export const title = 'Replay from the database to one reader';
export const metrics = {
  rate: 'events a second',
  megabytes: 'MB a second',
  cpu: 'service CPU per event, µs',
  databaseCpu: 'database CPU per event, µs',
};
export const goals = [
  {
    label: 'replay of 50k events / psql COPY of as many',
    metric: 'rate',
    against: 'psql COPY',
    atLeast: 1.5,
  },
  { label: 'replay CPU per event, 50k / 1k', metric: 'cpu', against: 'service, 1k', atMost: 1.2 },
];

export async function open({ say, tiny, profile }) {
  const large = tiny ? 2_000 : 50_000;
  const small = tiny ? 200 : 1_000;
  const reader = await startReader();
  const service = await startSourceService({ profile });
  const sessions = {};
  for (const messages of [large, small]) {
    const id = await service.source(messages, { free: true });
    await service.until(id, 'completed');
    sessions[messages] = id;
  }
  // The same events as one row each, for the reference.
  await service.database.query(
    `CREATE TABLE bench_rows AS
     SELECT gen_random_uuid() AS session_id, n AS id, now() AS created_at, 1 AS turn, 1::smallint AS kind,
       rpad('@s=' || n || ' ', 149, 'abcdefghijklmnopqrstuvwxyz ') || E'\\n' AS data
     FROM generate_series(1, ${large}) n`,
  );
  await service.database.query('ALTER TABLE bench_rows ADD PRIMARY KEY (id)');
  await service.database.query('VACUUM ANALYZE bench_rows');

  const replay = async (messages, times) => {
    const target = service.stream(sessions[messages]);
    const database = cpuMeter(service.pids().filter((pid) => pid !== service.pid));
    const cpu = cpuMeter([service.pid]);
    let ms = 0;
    let bytes = 0;
    for (let at = 0; at < times; at += 1) {
      const one = await reader.call('replay', { target, ids: true, messages });
      ms += one.ms;
      bytes += one.bytes;
    }
    const events = messages * times;
    return {
      rate: (events * 1000) / ms,
      megabytes: bytes / 1000 / ms,
      cpu: (cpu() * 1000) / events,
      databaseCpu: (database() * 1000) / events,
    };
  };
  const contenders = {
    service: () => replay(large, tiny ? 1 : 5),
    'service, 1k': () => replay(small, tiny ? 1 : 100),
  };
  if (psql === undefined)
    say('  without psql COPY: psql is not installed (apt-get install postgresql-client)');
  else {
    const copy = 'COPY (SELECT id, turn, kind, data FROM bench_rows ORDER BY id) TO STDOUT';
    contenders['psql COPY'] = async () => {
      const script = Array.from(
        { length: tiny ? 1 : 5 },
        () => `\\o /dev/null\n${copy};\n\\o\n`,
      ).join('');
      const { stdout, stderr, status } = spawnSync(psql, ['-qX', service.databaseUrl], {
        input: `\\timing on\n${script}`,
        encoding: 'utf8',
      });
      const times = [...stdout.matchAll(/^Time: ([\d.]+) ms/gm)].map(([, ms]) => Number(ms));
      if (status !== 0 || times.length === 0) throw new Error(`psql: ${stderr}`);
      return { rate: (large * times.length * 1000) / times.reduce((sum, ms) => sum + ms, 0) };
    };
  }
  const close = () => Promise.all([reader.stop(), service.stop()]);
  return { contenders, close };
}
