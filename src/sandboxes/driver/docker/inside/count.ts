/**
 * Counts the bytes in folders, and exits when they exceed a limit. Runs in a container of its own, which the processes
 * that write to the folders cannot reach. Arguments: the limit in bytes, and the folders.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { diskUsage } from '../../../../supervisor/limits/disk-usage.js';
import { TOO_MUCH } from './count-protocol.js';

const [, , bytes = '', ...folders] = process.argv;
const limit = Number(bytes);
/** Pauses at least twice as long as a count takes. */
const REST = { leastMs: 500, times: 2 };

process.on('SIGTERM', () => process.exit(0));
for (;;) {
  const began = performance.now();
  if ((await diskUsage(folders, limit)) > limit) process.exit(TOO_MUCH);
  await delay(Math.max(REST.leastMs, (performance.now() - began) * REST.times));
}
