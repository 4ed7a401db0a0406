import { setTimeout as delay } from 'node:timers/promises';
import { privateBytes } from '../lib/processes.mjs';
import { startPublisher, startReader, startSourceService } from '../lib/subjects.mjs';
import { feedOf } from '../references/feeds.mjs';
import { available } from '../references/index.mjs';

export const title = 'Idle streams';
/** Every round uses new processes, because a process does not return all memory that it has used. */
export const fresh = true;
export const metrics = { kib: 'memory per stream, KiB', held: 'streams held' };
export const goals = [
  { label: 'memory per idle stream / nchan', metric: 'kib', against: 'nchan', atMost: 1.5 },
];

/** One process each; every stream has its own session in the service and its own channel elsewhere. */
export async function open({ say, tiny }) {
  const count = tiny ? 20 : 10_000;
  const sessions = tiny ? 2 : 100;
  const reader = await startReader();
  const service = await startSourceService();
  const publisher = await startPublisher();
  const references = await available(['nchan', 'bare-node', 'sandbox-agent', 'opencode'], say);
  await service.allow(1);
  const ids = [];
  for (let at = 0; at < sessions; at += 1) ids.push(await service.source(2));
  for (const id of ids) await service.until(id, 'running');

  const hold = async (targets, pids, settle = async () => undefined) => {
    // One-time costs of the first streams, such as compiled code, are not part of a stream's cost.
    await reader.call('hold', { targets: targets.slice(0, targets.length / 10) });
    await settle();
    await delay(500);
    const memory = () => pids.reduce((sum, pid) => sum + privateBytes(pid), 0);
    await reader.call('close');
    await settle();
    await delay(tiny ? 100 : 1_000);
    const before = memory();
    await reader.call('hold', { targets });
    await delay(tiny ? 100 : 1_500);
    await settle();
    await delay(tiny ? 100 : 500);
    const after = memory();
    const held = await reader.call('held');
    await reader.call('close');
    await delay(tiny ? 100 : 1_000);
    return { kib: (after - before) / 1024 / targets.length, held };
  };
  const contenders = {
    service: () =>
      hold(
        Array.from({ length: count }, (_, at) => service.stream(ids[at % ids.length])),
        [service.pid],
        service.memory,
      ),
  };
  for (const [name, reference] of Object.entries(references)) {
    const feed = feedOf(reference, publisher);
    const channels = Array.from(
      { length: reference.idle?.channels ?? sessions },
      (_, at) => `idle-${at}`,
    );
    const streams = Math.min(count, reference.idle?.streams ?? count);
    contenders[name] = async () => {
      await feed.open(channels);
      const targets = Array.from({ length: streams }, (_, at) =>
        reference.stream(channels[at % channels.length]),
      );
      const result = await hold(targets, reference.pids());
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
