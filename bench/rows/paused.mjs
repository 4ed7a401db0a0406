import { setTimeout as delay } from 'node:timers/promises';
import { residentBytes } from '../lib/processes.mjs';
import { startReader, startSourceService } from '../lib/subjects.mjs';

export const title = 'Eight readers that stopped reading a stream of 100 MB';
export const metrics = {
  grown: "the service's memory grew by, MB",
  held: 'of it in use, MB',
};
export const goals = [
  { label: 'memory grown by 8 paused readers, MB', metric: 'grown', atMost: 20 },
];

export async function open({ tiny }) {
  const megabytes = tiny ? 2 : 100;
  const reader = await startReader();
  const service = await startSourceService();
  const messageBytes = 16_000;
  const messages = Math.floor((megabytes * 1e6) / messageBytes);
  // Memory that ingesting leaves in the heap is not part of a reader's cost.
  for (let turn = 0; turn < (tiny ? 1 : 3); turn += 1) {
    const warm = await service.source(messages, { free: true, bytes: messageBytes });
    await service.until(warm, 'completed');
    await service.memory();
  }

  const contenders = {
    service: async () => {
      await service.allow(1);
      const id = await service.source(messages, { bytes: messageBytes });
      await service.until(id, 'running');
      const targets = Array.from({ length: 8 }, () => service.stream(id));
      await service.memory();
      const inUse = usedOf(await service.memory());
      const before = residentBytes(service.pid);
      await reader.call('hold', { targets, paused: true });
      await service.allow(messages);
      await service.until(id, 'completed');
      await delay(1_000);
      await service.memory();
      const held = (usedOf(await service.memory()) - inUse) / 1e6;
      const grown = (residentBytes(service.pid) - before) / 1e6;
      const connected = await reader.call('held');
      await reader.call('close');
      if (connected !== 8) throw new Error(`${connected} of 8 readers were still connected`);
      return { grown, held };
    },
  };
  const close = () => Promise.all([reader.stop(), service.stop()]);
  return { contenders, close };
}

/** Beyond Node's own count, there may be memory that it keeps for reuse. */
const usedOf = ({ heapUsed, external }) => heapUsed + external;
