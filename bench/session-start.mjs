// How long it takes from POST /sessions to the first output of `echo hi`, beside the bare cost of entering a sandbox.
// npm run bench:start [-- rounds]
import { spawn } from 'node:child_process';
import { prepare } from '../scripts/lib/project.mjs';
import { complain, say } from '../scripts/lib/output.mjs';
import { startBenchService } from './lib/bench-service.mjs';

const WARM_UP = 3;
const rounds = Number(process.argv[2] ?? 30);

/** About what the service's own sandbox is made of: every namespace, no capabilities, the host's /usr, as nobody. */
const BARE = [
  process.geteuid() === 0
    ? 'setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs'
    : '',
  'env -i bwrap --unshare-all --cap-drop ALL --die-with-parent --new-session',
  '--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64',
  '--proc /proc --dev /dev --tmpfs /tmp -- /usr/bin/bash',
]
  .join(' ')
  .trim()
  .split(' ');

prepare(complain);
const service = await startBenchService();
const { session, bare } = await measure().finally(() => service.stop());

say(`${rounds} rounds, after ${WARM_UP} to warm up`);
say(`POST /sessions to the first output event: ${summary(session)}`);
say(`entering a bare sandbox:                  ${summary(bare)}`);
say(`ratio of the medians:                     ${(at(session, 0.5) / at(bare, 0.5)).toFixed(1)}`);
say(`bare: ${BARE.join(' ')} -c 'echo hi'`);

/** One after the other, so that whatever else the machine does falls on both. */
async function measure() {
  const agent = { name: 'bench', provider: 'shell', model: 'shell/bash' };
  const { id } = await service.post('/agents', agent);
  const times = { session: [], bare: [] };
  for (let round = 0; round < WARM_UP + rounds; round += 1) {
    const sessionMs = await timeSession(id);
    const bareMs = await timeBare();
    if (round < WARM_UP) continue;
    times.session.push(sessionMs);
    times.bare.push(bareMs);
  }
  return times;
}

async function timeSession(agentId) {
  const begun = performance.now();
  const { id } = await service.post('/sessions', { agent_id: agentId, prompt: 'echo hi' });
  const outputAt = await service.firstOutputAt(id);
  // Its sandbox would be kept for the next prompt.
  await service.post(`/sessions/${id}/terminate`);
  return outputAt - begun;
}

async function timeBare() {
  const [file, ...args] = [...BARE, '-c', 'echo hi'];
  const begun = performance.now();
  const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const end = new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  const outputAt = new Promise((resolve) => {
    child.stdout.once('data', () => resolve(performance.now()));
  });
  const code = await end;
  if (code !== 0) throw new Error(`the bare sandbox ended with ${code}`);
  return (await outputAt) - begun;
}

function summary(times) {
  const [median, p90] = [at(times, 0.5), at(times, 0.9)];
  return `median ${median.toFixed(0).padStart(4)} ms, p90 ${p90.toFixed(0).padStart(4)} ms`;
}

function at(times, quantile) {
  const sorted = times.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * quantile))];
}
