import { cpus } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { number } from '../lib/report.mjs';
import { startService } from '../lib/service.mjs';
import { Load } from './load.mjs';
import { Probe } from './probe.mjs';
import { judgeSoak, toSoakTable, withRatios } from './verdict.mjs';

const UNITS = { s: 1, m: 60, h: 3600 };
/** The interval of samples, each of which collects garbage: short enough for a chart, long enough to cause no load. */
const SAMPLES = 240;
const SHORTEST_INTERVAL_MS = 1_000;
const EMPTY_LIMIT_MS = 60_000;
const FIRST_MESSAGE_LIMIT_MS = 60_000;
const WORKERS = '24';

/** @returns seconds, or `undefined` for an invalid duration. */
export function parseDuration(text) {
  const [, amount, unit] = /^(\d+(?:\.\d+)?)([smh])$/.exec(text) ?? [];
  return amount && Number(amount) * UNITS[unit];
}

/**
 * Runs the deployed service with real sandboxes at half load for a long time, and checks that resource use stays flat.
 * @returns `ok`, `table`, `samples`, `judged` and `summary`.
 */
export async function soak({ seconds, say }) {
  const service = await startService({ inspect: true, env: { WORKER_CONCURRENCY: WORKERS } });
  const stopEarly = new AbortController();
  const onSignal = () => stopEarly.abort();
  process.once('SIGINT', onSignal);
  try {
    const probe = await Probe.open(service);
    const load = new Load(service);
    load.start();
    await load.flows(FIRST_MESSAGE_LIMIT_MS);
    const begun = performance.now();
    const machine = busyMeter();
    const samples = await take({ probe, load, seconds, begun, say, signal: stopEarly.signal });
    const busy = machine();
    await load.stop();
    const left = await probe.untilEmpty(EMPTY_LIMIT_MS);
    await probe.close();

    const all = withRatios(samples);
    const judged = judgeSoak(all);
    const problems = [...load.problems];
    if (left.sandboxes + left.processes > 0)
      problems.push(`${left.sandboxes} sandboxes and ${left.processes} processes were left`);
    const last = all.at(-1);
    const share = (last.cpuMs - all[0].cpuMs) / 10 / (last.seconds - all[0].seconds);
    const summary =
      `${number(last.seconds / 60)} minutes, ${number(load.sessions)} sessions in real sandboxes, ${number(load.messages)} messages,` +
      ` ${number(load.resumed)} resumed streams; the service's process used ${number(share)} % of a core, the machine was ${number(busy * 100)} % busy`;
    const ok = problems.length === 0 && judged.every(({ flat }) => flat);
    return { ok, summary, problems, samples: all, judged, table: toSoakTable(judged) };
  } finally {
    process.off('SIGINT', onSignal);
    await service.stop();
  }
}

async function take({ probe, load, seconds, begun, say, signal }) {
  const interval = Math.max(SHORTEST_INTERVAL_MS, (seconds * 1000) / SAMPLES);
  const elapsed = () => (performance.now() - begun) / 1000;
  const samples = [];
  let told = 0;
  while (elapsed() < seconds && !signal.aborted) {
    await delay(interval, undefined, { signal }).catch(() => undefined);
    const sample = { seconds: elapsed(), ...(await probe.sample()), messages: load.messages };
    samples.push(sample);
    if (elapsed() - told < Math.max(10, seconds / 30)) continue;
    told = elapsed();
    const { residentMb, usedMb, descriptors, sandboxes } = sample;
    say(
      `  ${number(told)} s: ${number(residentMb)} MB resident, ${number(usedMb)} in use, ${descriptors} descriptors,` +
        ` ${sandboxes} sandboxes, ${number(load.sessions)} sessions, ${number(load.messages)} messages, ${load.problems.length} problems`,
    );
  }
  return samples;
}

/** Starts measuring. @returns a function that returns the share of the machine's CPU time in use since then. */
function busyMeter() {
  const read = () => {
    const times = cpus().flatMap(({ times: one }) => Object.entries(one));
    const sum = (entries) => entries.reduce((total, [, ms]) => total + ms, 0);
    return { all: sum(times), idle: sum(times.filter(([what]) => what === 'idle')) };
  };
  const before = read();
  return () => {
    const after = read();
    return 1 - (after.idle - before.idle) / (after.all - before.all);
  };
}
