import { startService } from '../lib/service.mjs';
import { timeSession } from '../lib/sessions.mjs';
import { median, quantile } from '../lib/statistics.mjs';

/** Sessions that are created all at once, with a slot for each. */
export function burstRow({ count, goalMs }) {
  return {
    title: `${count} sessions at once: POST /sessions to the first output of \`echo hi\``,
    metrics: { p50: 'ms, median', p95: 'ms, 95th percentile' },
    goals: [{ label: `burst of ${count} sessions, p95, ms`, metric: 'p95', atMost: goalMs }],
    async open({ tiny, profile }) {
      const sessions = tiny ? 3 : count;
      const service = await startService({
        env: { WORKER_CONCURRENCY: String(sessions) },
        profile,
      });
      await timeSession(service);
      const contenders = {
        service: async () => {
          const all = await Promise.all(
            Array.from({ length: sessions }, () => timeSession(service)),
          );
          return { p50: median(all), p95: quantile(all, 0.95) };
        },
      };
      return { contenders, close: () => service.stop() };
    },
  };
}
