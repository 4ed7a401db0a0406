import { setTimeout as delay } from 'node:timers/promises';
import { pacedScript } from '../lib/messages.mjs';
import { cpuMeter } from '../lib/processes.mjs';
import { startService } from '../lib/service.mjs';
import { startPublisher, startReader } from '../lib/subjects.mjs';
import { feedOf } from '../references/feeds.mjs';
import { available } from '../references/index.mjs';

export const title =
  'Live: 50 streams, 500 messages a second in all; printed (or posted) to received';
export const metrics = {
  p50: 'p50, ms',
  p99: 'p99, ms',
  cpu: 'server CPU per event, µs',
  rate: 'messages received a second',
};
export const goals = [
  { label: 'live delivery p50 / nchan', metric: 'p50', against: 'nchan', atMost: 6 },
  {
    label: 'live delivery p50 / sandbox-agent',
    metric: 'p50',
    against: 'sandbox-agent',
    atMost: 1.2,
  },
  { label: 'live delivery p99 / nchan', metric: 'p99', against: 'nchan', atMost: 8 },
];

/** The service runs real sandboxes, and the measurement starts at the `printf` in them. */
export async function open({ say, tiny, profile }) {
  const streams = tiny ? 3 : 50;
  const windowMs = tiny ? 500 : 4_000;
  const rate = streams * 10;
  const reader = await startReader();
  const publisher = await startPublisher();
  const service = await startService({ env: { WORKER_CONCURRENCY: String(streams) }, profile });
  const references = await available(['nchan', 'bare-node', 'sandbox-agent', 'opencode'], say);

  /** Measures the streams during the window, once they are flowing. */
  const observe = async (targets, ids, pids) => {
    await reader.call('openEach', { targets, ids });
    await delay(tiny ? 200 : 1_000);
    const cpu = cpuMeter(pids);
    await reader.call('begin');
    await delay(windowMs);
    const { p50, p99, count, problems } = await reader.call('end');
    const cpuMs = cpu();
    await reader.call('close');
    if (problems.length > 0) throw new Error(problems.join('; '));
    return { p50, p99, cpu: (cpuMs * 1000) / count, rate: (count * 1000) / windowMs };
  };

  const contenders = {
    service: async () => {
      const script = pacedScript({ count: 1200, intervalMs: 100 });
      const ids = await Promise.all(Array.from({ length: streams }, () => service.run(script)));
      for (const id of ids) await service.until(id, 'running');
      await delay(tiny ? 1_000 : 4_000);
      const targets = ids.map((id) => service.stream(id));
      const result = await observe(targets, true, [service.pid]);
      await Promise.all(ids.map((id) => service.post(`/sessions/${id}/terminate`)));
      await delay(500);
      return result;
    },
  };
  for (const [name, reference] of Object.entries(references)) {
    const feed = feedOf(reference, publisher);
    let round = 0;
    contenders[name] = async () => {
      round += 1;
      const channels = Array.from({ length: streams }, (_, at) => `live-${round}-${at}`);
      await feed.open(channels);
      await feed.paced(channels, rate);
      await delay(300);
      const result = await observe(
        channels.map((channel) => reference.stream(channel)),
        reference.ids,
        reference.pids(),
      );
      await feed.stop();
      return result;
    };
  }
  const close = () =>
    Promise.all(
      [reader, publisher, service, ...Object.values(references)].map((one) => one.stop()),
    );
  return { contenders, close };
}
