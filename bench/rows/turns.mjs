import { cpuMs } from '../lib/processes.mjs';
import { startService } from '../lib/service.mjs';

export const title = 'Queued turns of `true`, WORKER_CONCURRENCY=8';
export const metrics = { cpu: "service's own CPU per turn, ms", rate: 'turns a second' };
export const goals = [{ label: 'service CPU per turn, ms', metric: 'cpu', atMost: 8 }];

/** Measures only the service's process, because supervisors and sandboxes are not its children. */
export async function open({ tiny, profile }) {
  const count = tiny ? 6 : 1_000;
  const service = await startService({ env: { WORKER_CONCURRENCY: '8' }, profile });
  const contenders = {
    service: async () => {
      const before = cpuMs(service.pid);
      const begun = performance.now();
      const ids = [];
      for (let at = 0; at < count; at += 1) ids.push(await service.run('true'));
      // Waits for the end of the last one, and then for the others that are still running, because polling costs the
      // service CPU time.
      for (const id of ids.toReversed())
        await service.until(id, 'completed', { limitMs: 600_000, everyMs: 500 });
      const result = {
        cpu: (cpuMs(service.pid) - before) / count,
        rate: (count * 1000) / (performance.now() - begun),
      };
      for (const id of ids) await service.post(`/sessions/${id}/terminate`);
      return result;
    },
  };
  return { contenders, close: () => service.stop() };
}
