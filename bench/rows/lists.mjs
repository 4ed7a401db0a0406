import { populate } from '../lib/populate.mjs';
import { median } from '../lib/statistics.mjs';
import { startSourceService } from '../lib/subjects.mjs';

export const title = 'GET /sessions of a user with 10,000';
export const metrics = { ms: 'ms, median', statements: 'statements of the database' };
export const goals = [
  { label: 'GET /sessions, ms', metric: 'ms', atMost: 150 },
  { label: 'statements', metric: 'statements', atMost: 2 },
];

export async function open({ tiny, profile }) {
  const count = tiny ? 200 : 10_000;
  const service = await startSourceService({ profile });
  await populate(service.database, { sessions: count, agentId: service.agentId });
  const transactions = async () => {
    // What a backend did shows a moment later.
    await new Promise((resolve) => setTimeout(resolve, 1_200));
    const { rows } = await service.database.query(
      'SELECT sum(xact_commit)::int AS done FROM pg_stat_database WHERE datname = current_database()',
    );
    return rows[0].done;
  };
  const list = async () => {
    const begun = performance.now();
    const { data } = await service.get('/sessions');
    const ms = performance.now() - begun;
    if (data.length !== count) throw new Error(`${data.length} of ${count} sessions were listed`);
    return ms;
  };
  const contenders = {
    service: async () => {
      const all = [];
      for (let at = 0; at < 9; at += 1) all.push(await list());
      const idle = await transactions().then(async (first) => (await transactions()) - first);
      const before = await transactions();
      for (let at = 0; at < 20; at += 1) await list();
      const statements = Math.max(0, Math.round(((await transactions()) - before - idle) / 20));
      return { ms: median(all), statements };
    },
  };
  return { contenders, close: () => service.stop() };
}
