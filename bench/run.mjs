// Measures the service and comparable servers in turns on the same machine.
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { parseArgs } from 'node:util';
import { complain, say } from '../scripts/lib/output.mjs';
import { prepare, ROOT } from '../scripts/lib/project.mjs';
import { compare, toBaseline } from './lib/gate.mjs';
import { toChart } from './lib/chart.mjs';
import { describeMachine } from './lib/machine.mjs';
import { figures, judge, number, toMarkdown } from './lib/report.mjs';
import { installPeers } from './references/peers.mjs';
import { renderProfiles } from './profiles/render.mjs';
import { ROWS } from './rows/index.mjs';
import { toSoakChart } from './soak/chart.mjs';
import { parseDuration, soak } from './soak/run.mjs';

const USAGE = `npm run bench -- [options]
  --only ROWS       some of: ${Object.keys(ROWS).join(', ')}
  --rounds N        how often each row is measured, alternating with its references (3)
  --json FILE       writes all measurements
  --write           updates the tables and charts of docs/performance.md, including those of a soak test
  --gate            fails if a ratio is worse than in bench/baseline.json by more than the noise of both
  --baseline        writes the measured ratios to bench/baseline.json
  --baseline-file FILE  another file than bench/baseline.json
  --results FILE    evaluates what --json has written instead of measuring
  --profile FOLDER  writes CPU profiles of the service's processes, with flame graphs and summaries, by row
  --flame FOLDER    only creates flame graphs and summaries of existing CPU profiles
  --window FROM-TO  only these seconds of the profiles, such as 30-35, counted from the start of the process
  --soak DURATION   half load for this long (30m, 90s): memory, descriptors and bytes per message must stay flat
  --peers           first installs other servers that are available from npm, to measure them as well
  --no-build        measures the existing build
  --tiny            the smallest possible run, as a test: its figures mean nothing`;
const DOCUMENT = join(ROOT, 'docs', 'performance.md');
const BASELINE = join(ROOT, 'bench', 'baseline.json');
const CHART = join(ROOT, 'docs', 'performance.svg');
const SOAK_CHART = join(ROOT, 'docs', 'soak.svg');
const MARKERS = ['<!-- bench: begin -->\n', '<!-- bench: end -->'];
const SOAK_MARKERS = ['<!-- soak: begin -->\n', '<!-- soak: end -->'];

const { values: options } = parseArgs({
  options: {
    only: { type: 'string' },
    rounds: { type: 'string', default: '3' },
    json: { type: 'string' },
    write: { type: 'boolean', default: false },
    gate: { type: 'boolean', default: false },
    baseline: { type: 'boolean', default: false },
    'baseline-file': { type: 'string', default: BASELINE },
    results: { type: 'string' },
    profile: { type: 'string' },
    flame: { type: 'string' },
    window: { type: 'string' },
    soak: { type: 'string' },
    peers: { type: 'boolean', default: false },
    'no-build': { type: 'boolean', default: false },
    tiny: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

if (options.help) say(USAGE);
else if (options.soak) process.exitCode = await runSoak();
else if (options.flame) process.exitCode = await runFlames();
else if (options.results)
  process.exitCode = await evaluate(JSON.parse(await readFile(options.results, 'utf8')));
else process.exitCode = await run();
// If a row failed to start, its helpers would keep this process running; they end with it.
process.exit();

async function runFlames() {
  const [, from, to] = /^([\d.]+)-([\d.]+)$/.exec(options.window ?? '') ?? [];
  if (options.window && !to) return usage('--window takes two numbers, such as 30-35');
  await renderFlames(options.flame, to && { from: Number(from), to: Number(to) });
  return 0;
}

async function renderFlames(folder, window) {
  for (const path of await renderProfiles(folder, window)) say(path);
}

/** Fails if something grew, was left behind or was wrong. */
async function runSoak() {
  const seconds = parseDuration(options.soak);
  if (!seconds) return usage('--soak takes a duration, such as 30m');
  if (!options['no-build']) prepare(complain);
  const machine = describeMachine(1);
  say(`${machine.description}\nsoak: ${options.soak} at half load`);
  const { ok, summary, problems, samples, judged, table } = await soak({ seconds, say });
  for (const problem of problems.slice(0, 10)) complain(`  ${problem}`);
  say(`\n${summary}\n\n${table}\n\n${ok ? 'flat' : 'NOT flat, or something was wrong'}`);
  if (options.json)
    await writeFile(
      options.json,
      `${JSON.stringify({ machine, judged, problems, samples }, null, 2)}\n`,
    );
  if (options.write) {
    const note = `${machine.description}, ${machine.date}; after garbage collection`;
    await writeFile(SOAK_CHART, toSoakChart(samples, judged, note));
    await replacePart(SOAK_MARKERS, `${note}: ${summary}.\n\n${table}`);
  }
  return ok ? 0 : 1;
}

async function run() {
  const names = options.only?.split(',') ?? Object.keys(ROWS);
  const unknown = names.filter((name) => !(name in ROWS));
  if (unknown.length > 0) return usage(`There is no row ${unknown.join(', ')}`);
  const rounds = Number(options.rounds);
  if (!Number.isInteger(rounds) || rounds < 1) return usage('--rounds takes a whole number');
  if (!options['no-build']) prepare(complain);
  if (options.peers) installPeers(complain);

  const machine = describeMachine(rounds);
  say(machine.description);
  const measured = {};
  const failed = [];
  for (const name of names) {
    try {
      measured[name] = await measureRow(name, rounds);
    } catch (error) {
      // An error in one row must not affect the others.
      complain(`${name} could not be measured: ${error.stack}`);
      failed.push(name);
    }
  }
  const judged = judge(ROWS, measured);
  say('');
  for (const one of judged) say(verdict(one));
  if (options.profile) await renderFlames(options.profile);
  if (options.json)
    await writeFile(options.json, `${JSON.stringify({ machine, judged, measured }, null, 2)}\n`);
  if (options.write) await writeDocument({ machine, judged, measured });
  const worse = await evaluate({ machine, judged });
  return failed.length === 0 ? worse : 1;
}

/** Writes the baseline, or compares with it, as the options want. @returns the exit code */
async function evaluate({ machine, judged }) {
  const file = options['baseline-file'];
  if (options.baseline) {
    const before = existsSync(file) ? JSON.parse(await readFile(file, 'utf8')) : undefined;
    await writeFile(file, `${JSON.stringify(toBaseline(judged, machine, before), null, 2)}\n`);
  }
  if (!options.gate) return 0;
  if (!existsSync(file)) return usage(`There is no baseline ${file}: write one with --baseline`);
  const { compared, worse, lines } = compare(judged, JSON.parse(await readFile(file, 'utf8')));
  say(`\nCompared with ${relative(ROOT, file)}:`);
  for (const line of lines) say(line);
  if (compared === 0) complain('Nothing could be compared with the baseline');
  return worse > 0 || compared === 0 ? 1 : 0;
}

/** Measures each contender once per round. The first one changes, so that none always follows the same one. */
async function measureRow(name, rounds) {
  const row = ROWS[name];
  say(`\n${name}: ${row.title}`);
  const results = {};
  const openings = row.fresh ? rounds : 1;
  for (let opening = 0; opening < openings; opening += 1) {
    const { contenders, close } = await row.open({
      say: opening === 0 ? say : () => undefined,
      tiny: options.tiny,
      profile: options.profile && join(options.profile, name),
    });
    try {
      const order = Object.keys(contenders);
      for (let turn = 0; turn < opening; turn += 1) order.push(order.shift());
      for (let round = 0; round < rounds / openings; round += 1) {
        for (const who of order) (results[who] ??= []).push(await contenders[who]());
        order.push(order.shift());
      }
    } finally {
      await close();
    }
  }
  for (const one of figures(ROWS, { [name]: results }))
    say(`  ${one.contender.padEnd(14)} ${one.label.padEnd(42)} ${range(one)}`);
  return results;
}

function range({ median, min, max }) {
  return `${number(median)} (${number(min)} to ${number(max)})`;
}

function verdict(one) {
  if (one.missing) return `  --  ${one.label}: not measured`;
  const sign = one.atMost === undefined ? '≥' : '≤';
  return `  ${one.met ? 'ok' : 'NO'}  ${one.label}: ${range(one)}, goal ${sign} ${number(one.goal)}`;
}

async function writeDocument(results) {
  await replacePart(MARKERS, toMarkdown(ROWS, results));
  await writeFile(CHART, toChart(results.judged, results.machine.description));
}

/** Replaces the text between two markers of the document and keeps the rest. */
async function replacePart([begin, end], part) {
  const text = await readFile(DOCUMENT, 'utf8');
  const [before, rest] = text.split(begin);
  const after = rest?.split(end)[1];
  if (after === undefined) throw new Error(`${DOCUMENT} has no ${begin.trim()}`);
  await writeFile(DOCUMENT, `${before}${begin}\n${part.trimEnd()}\n\n${end}${after}`);
}

function usage(problem) {
  complain(`${problem}\n\n${USAGE}`);
  return 2;
}
