import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Cluster } from './cluster.js';
import { names } from '../support/sandbox-processes.js';
import { processesOf } from './processes.js';

/** What may be in the data folder when no session is left; everything else was forgotten there. */
const LASTING = /^(host-id|encryption-keys|cache|gateway|installation|lock|sandboxes)$/;
const LASTING_SANDBOXES = /^(\.probe|\.etc|\.uids|\.rootfs|\.layers|\.builds)$/;

/** What is left after all sessions were deleted; waits until nothing is, for so long. */
export async function leftovers(cluster: Cluster, limitMs: number): Promise<string[]> {
  const giveUpAt = Date.now() + limitMs;
  for (;;) {
    const found = await look(cluster);
    if (found.length === 0 || Date.now() > giveUpAt) return found;
    await delay(500);
  }
}

async function look(cluster: Cluster): Promise<string[]> {
  const { database, sandboxes } = cluster;
  const rows = await database.query<{ what: string }>(`
    SELECT 'sandbox record ' || session_id AS what FROM sandboxes
    UNION ALL SELECT 'lease of turn ' || id FROM turns WHERE lease_owner IS NOT NULL
    UNION ALL SELECT 'session ' || id FROM sessions
    UNION ALL SELECT 'turn ' || id FROM turns
    UNION ALL SELECT 'log of session ' || session_id FROM event_log GROUP BY session_id`);
  const data = dirname(sandboxes);
  return [
    ...rows.map(({ what }) => what),
    ...names(data)
      .filter((name) => !LASTING.test(name))
      .map((name) => `file ${name}`),
    ...names(sandboxes)
      .filter((name) => !LASTING_SANDBOXES.test(name))
      .map((name) => `sandbox ${name}`),
    ...names(join(sandboxes, '.uids')).map((name) => `user ${name}`),
    ...processesOf(sandboxes, await cluster.users()).map((pid) => `process ${pid}`),
  ];
}
