import { populate } from '../lib/populate.mjs';
import { median } from '../lib/statistics.mjs';
import { startSourceService } from '../lib/subjects.mjs';

export const title = 'GET /sessions of a user with 10,000';
export const metrics = { ms: 'ms, median' };
export const goals = [{ label: 'GET /sessions of 10,000, ms', metric: 'ms', atMost: 150 }];

export async function open({ tiny, profile }) {
  const count = tiny ? 200 : 10_000;
  const service = await startSourceService({ profile });
  await populate(service.database, { sessions: count, agentId: service.agentId });
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
      return { ms: median(all) };
    },
  };
  return { contenders, close: () => service.stop() };
}
