import { parseArgs } from 'node:util';
import { type ChaosReport, runChaos } from './chaos.js';
import { measureLatency } from './latency.js';
import { runRolling } from './rolling.js';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '20' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    sessions: { type: 'string', default: '12' },
    readers: { type: 'string', default: '3' },
    rolling: { type: 'boolean', default: false },
    from: { type: 'string' },
    'workers-first': { type: 'boolean', default: false },
    kill: { type: 'boolean', default: false },
    latency: { type: 'boolean', default: false },
  },
});

const log = (line: string): void => {
  process.stdout.write(`${line}\n`);
};

if (values.latency) await measureLatency(log);
else process.exitCode = (values.rolling ? await rolling() : await chaos()) ? 0 : 1;

async function chaos(): Promise<boolean> {
  const minutes = Number(values.minutes);
  const seed = Number(values.seed);
  log(
    `chaos: seed ${seed}, ${minutes} minutes, 2 api and 2 worker processes, ${values.sessions} sessions at a time`,
  );
  const signal = interruption();
  const report = await runChaos({
    seed,
    seconds: minutes * 60,
    sessions: Number(values.sessions),
    readersPerSession: Number(values.readers),
    turnSeconds: [2, 20],
    pauseMs: [400, 3_000],
    log: (line) => log(`  ${line}`),
    keepLogs: true,
    signal,
  });
  print(report);
  return report.ok;
}

/** Ctrl-C ends the run with a report; the harness has to live on to wake and end what it froze. */
function interruption(): AbortSignal {
  const interrupted = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const)
    process.on(name, () => {
      log(`${name}: giving up, mending and clearing away`);
      interrupted.abort(new Error(`the run was interrupted by ${name}`));
    });
  return interrupted.signal;
}

async function rolling(): Promise<boolean> {
  return runRolling({
    sessions: 20,
    readers: 100,
    seconds: 45,
    from: values.from,
    workersFirst: values['workers-first'],
    kill: values.kill,
    log,
  });
}

function print({
  tally,
  faults,
  takeovers,
  orphans,
  duplicates,
  seconds,
  ok,
  folder,
}: ChaosReport): void {
  log(`\nafter ${seconds.toFixed(0)} s`);
  log('faults');
  for (const [name, count] of byName(faults)) log(`  ${name.padEnd(34)} ${count}`);
  log('time until another worker went on (ms)');
  for (const [kind, times] of byName(takeovers)) {
    const sorted = [...times].sort((a, b) => a - b);
    const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
    log(
      `  after ${kind.padEnd(28)} median ${median.toFixed(0).padStart(6)}  worst ${(sorted.at(-1) ?? 0).toFixed(0).padStart(6)}  turns ${sorted.length}`,
    );
  }
  for (const [name, value] of Object.entries({
    sessions: tally.sessions,
    turns: tally.turns,
    'turns terminated': tally.terminated,
    readers: tally.readers,
    connections: tally.connections,
    bytes: tally.bytes,
    lost: tally.lost,
    repeated: tally.repeated,
    reordered: tally.reordered,
    'done twice': duplicates,
    orphans: orphans.length,
    'problems (told above)': tally.problems.length,
  }))
    log(`${name.padEnd(36)} ${value}`);
  for (const orphan of orphans.slice(0, 50)) log(`LEFT ${orphan}`);
  if (folder !== undefined) log(`logs in ${folder}/logs`);
  log(ok ? 'OK' : 'FAILED');
}

function byName<T>(entries: ReadonlyMap<string, T>): [string, T][] {
  return [...entries].sort(([a], [b]) => a.localeCompare(b));
}
