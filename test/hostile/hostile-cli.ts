import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import type { Driver } from './attack.js';
import { attacksFor } from './attacks/index.js';
import { type HostileOptions, problems, runHostile, slowdown } from './hostile.js';
import { runIsolated } from './isolated.js';
import { isolatedTable, rotationTable, summaryTable } from './tables.js';

const USAGE = `npm run hostile -- [options]
  --driver local|docker  where sandboxes are made (local)
  --minutes N            for how long attacks run (5)
  --quiet SECONDS        for how long none does, before that (25)
  --lanes N              attacks at a time (5)
  --sessions N           sessions of the other user, 20 lines a second each (10)
  --seed N               decides the order of the attacks
  --split                a process for requests and one for turns, in place of one for both
  --short                75 seconds in all, shorter attacks; timing decides nothing
  --isolated             one attack at a time, each once; a service that one has ruined is replaced
  --pace FACTOR          multiplies all durations of attacks (1)
  --only NAMES           some attacks, separated by commas
  --table FILE           writes the results as Markdown
  --list                 tells the attacks`;
/** How much later lines may arrive under attack. */
const GOAL = 3;

const { values } = parseArgs({
  options: {
    driver: { type: 'string', default: 'local' },
    minutes: { type: 'string', default: '5' },
    quiet: { type: 'string' },
    lanes: { type: 'string', default: '5' },
    sessions: { type: 'string', default: '10' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    split: { type: 'boolean', default: false },
    short: { type: 'boolean', default: false },
    isolated: { type: 'boolean', default: false },
    pace: { type: 'string' },
    only: { type: 'string' },
    table: { type: 'string' },
    list: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

const log = (line: string): void => {
  process.stdout.write(`${new Date().toISOString().slice(11, 19)} ${line}\n`);
};

if (values.help) process.stdout.write(`${USAGE}\n`);
else if (values.driver !== 'local' && values.driver !== 'docker') usage('--driver');
else if (values.list) list(values.driver);
else await run(optionsFor(values.driver));

function optionsFor(driver: Driver): HostileOptions {
  const interrupted = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const)
    process.on(name, () => {
      log(`${name}: stopping and clearing up`);
      interrupted.abort(new Error(name));
    });
  const quiet = values.quiet ?? (values.short ? '10' : values.isolated ? '8' : '25');
  return {
    driver,
    split: values.split,
    seed: Number(values.seed),
    quiet: Number(quiet),
    attacked: values.short ? 45 : Number(values.minutes) * 60,
    lanes: Number(values.lanes),
    sessions: Number(values.sessions),
    pace: Number(values.pace ?? (values.short ? 0.3 : 1)),
    // A machine of CI has other things to do, and an engine takes its time for each container.
    startLimit: values.short || driver === 'docker' ? 60 : 20,
    only: values.only?.split(','),
    log,
    signal: interrupted.signal,
    keepLogs: true,
  };
}

async function run(options: HostileOptions): Promise<void> {
  log(`hostile: seed ${options.seed}, ${options.driver}`);
  if (values.isolated) {
    const results = await runIsolated(options);
    await write(isolatedTable(results));
    process.exitCode = results.every(({ held, harm }) => held && harm === '') ? 0 : 1;
    return;
  }
  const report = await runHostile(options);
  await write(`${summaryTable(report)}\n${rotationTable(report, options.driver)}`);
  const wrong = problems(report);
  const slow = slowdown(report);
  if (!values.short && slow > GOAL)
    wrong.push(`lines arrive ${slow.toFixed(1)} times as late at p99, more than ${GOAL} times`);
  for (const problem of wrong) log(`PROBLEM ${problem}`);
  log(wrong.length === 0 ? 'OK' : 'FAILED');
  process.exitCode = wrong.length === 0 ? 0 : 1;
}

async function write(table: string): Promise<void> {
  process.stdout.write(`\n${table}\n`);
  if (values.table !== undefined) await writeFile(values.table, table);
}

function list(driver: Driver): void {
  for (const { name, what } of attacksFor(driver))
    process.stdout.write(`${name.padEnd(26)} ${what}\n`);
}

function usage(wrong: string): void {
  process.stderr.write(`${wrong} is not one of those:\n${USAGE}\n`);
  process.exitCode = 2;
}
