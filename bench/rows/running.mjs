import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../../scripts/lib/project.mjs';
import { commandOf, processes, proportionalBytes, tree } from '../lib/processes.mjs';
import { startService } from '../lib/service.mjs';

export const title = 'Memory of running turns, in addition to the agent';
export const metrics = { mib: 'MiB for each turn (PSS)', service: "the service's own MiB (PSS)" };
export const goals = [
  { label: 'memory of a running turn beyond its agent, MiB', metric: 'mib', atMost: 6 },
];

const SUPERVISOR = join(ROOT, 'dist/src/supervisor/main.js');
/** The agent of the runtime `shell`, and what it runs. */
const AGENT = new Set(['bash', 'sleep']);
const MIB = 2 ** 20;

export async function open({ tiny, profile }) {
  const count = tiny ? 2 : 40;
  const service = await startService({ env: { WORKER_CONCURRENCY: String(count) }, profile });
  const before = new Set(supervisors());
  const ids = [];
  for (let at = 0; at < count; at += 1) ids.push(await service.run('echo here; sleep 600'));
  const deadline = performance.now() + 120_000;
  const ours = () => supervisors().filter((pid) => !before.has(pid));
  while (ours().length < count || !ours().every(runsAgent)) {
    if (performance.now() > deadline) throw new Error('not all turns began');
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const contenders = {
    service: async () => {
      const beside = ours()
        .flatMap((pid) => tree(pid))
        .filter((pid) => !AGENT.has(nameOf(pid)));
      const bytes = beside.reduce((sum, pid) => sum + proportionalBytes(pid), 0);
      return { mib: bytes / count / MIB, service: proportionalBytes(service.pid) / MIB };
    },
  };
  const close = async () => {
    for (const id of ids) await service.post(`/sessions/${id}/terminate`);
    await service.stop();
  };
  return { contenders, close };
}

function supervisors() {
  return processes().filter((pid) => commandOf(pid).includes(SUPERVISOR));
}

function runsAgent(pid) {
  return tree(pid).some((each) => nameOf(each) === 'sleep');
}

function nameOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return '';
  }
}
