import { mkdtempSync, rmSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { engineAnswers, startEngine } from './lib/docker-engine.mjs';
import { complain, say } from './lib/output.mjs';
import { NODE, ROOT, StepError, prepare } from './lib/project.mjs';
import { countTests, runStep } from './lib/test-steps.mjs';
import { ensurePrograms, ensureSystemPackages } from './lib/system-packages.mjs';
import { beginTestRun } from './lib/test-run.mjs';
import { STAGES } from './lib/test-stages.mjs';

const USAGE = `npm test [-- PATH...]            what every delivery has to pass, in ten minutes
npm run test:all [-- OPTIONS]    every stage

  --only STAGE,STAGE   only these stages
  --from STAGE         this stage and those after it
  PATH                 only test files whose path contains it

Stages: ${STAGES.map(({ name }) => name).join(', ')}
`;
/** A broken start should not cost hours of patience. */
const MOST_FAILED_FILES = 20;
const SLOWEST = 20;

try {
  const { help, stages, paths } = chosenStages();
  if (help) {
    say(USAGE);
    process.exit();
  }
  const endTestRun = beginTestRun();
  let stopEngine = async () => undefined;
  try {
    // First: among them is the compiler that the build needs.
    ensureSystemPackages(say);
    prepare(say);
    for (const { programs, pythonModules } of stages) ensurePrograms(programs, pythonModules, say);
    if (stages.some(({ engine }) => engine)) stopEngine = await startEngine(say);
    const stopPreparing = prepareSoftware();
    try {
      process.exitCode = await runAll(stages, paths);
    } finally {
      stopPreparing();
    }
  } finally {
    await stopEngine();
    endTestRun();
  }
} catch (error) {
  if (!(error instanceof StepError)) throw error;
  complain(error.message);
  process.exitCode = 1;
}

/** @returns {{help?: boolean, stages: import('./lib/test-stages.mjs').Stage[], paths: string[]}} */
function chosenStages() {
  let options;
  try {
    options = parseArgs({
      allowPositionals: true,
      options: {
        all: { type: 'boolean' },
        only: { type: 'string' },
        from: { type: 'string' },
        help: { type: 'boolean' },
      },
    });
  } catch (error) {
    throw new StepError(`${error.message}\n\n${USAGE}`);
  }
  const { values, positionals: paths } = options;
  const indexOf = (name) => {
    const index = STAGES.findIndex((stage) => stage.name === name);
    if (index === -1) throw new StepError(`There is no stage "${name}"\n\n${USAGE}`);
    return index;
  };
  if (values.help) return { help: true, stages: [], paths };
  if (values.only !== undefined && values.from !== undefined)
    throw new StepError(`--only and --from exclude each other\n\n${USAGE}`);
  if (values.only !== undefined) {
    return { stages: values.only.split(',').map((name) => STAGES[indexOf(name)]), paths };
  }
  if (values.from !== undefined) return { stages: STAGES.slice(indexOf(values.from)), paths };
  return { stages: STAGES.filter(({ always }) => values.all || always), paths };
}

/**
 * Starts to make the base system of sandboxes beside the checks. On a new machine the first suites that need it would
 * otherwise wait for it together. Where it cannot be made, those suites say why.
 *
 * @returns {() => void} ends what is still running
 */
function prepareSoftware() {
  const child = spawn(NODE, ['--no-warnings', join('test', 'support', 'prepare-software.mjs')], {
    cwd: ROOT,
    stdio: 'ignore',
  });
  child.once('error', () => undefined);
  return () => child.kill();
}

/** Runs the stages, also those after a failed one, and reports. @returns the exit code */
async function runAll(stages, paths) {
  const results = mkdtempSync(join(tmpdir(), 'results-'));
  const rows = [];
  /** The tests that the paths have picked. */
  let ran = 0;
  try {
    for (const stage of stages) {
      const steps = stage.scripts
        ? stage.scripts.map((script) => () => runScript(script))
        : stage.projects.map((project) => () => runProject(stage, project, paths, results));
      const row = { name: stage.name, seconds: 0, passed: 0, failed: [], skipped: [], files: [] };
      for (const step of steps) {
        const done = await step();
        row.seconds += done.seconds;
        row.passed += done.passed;
        row.failed.push(...done.failed);
        row.skipped.push(...done.skipped);
        row.files.push(...done.files);
        if (stage.projects) ran += done.passed + done.failed.length + done.skipped.length;
      }
      rows.push(row);
    }
  } finally {
    rmSync(results, { recursive: true, force: true });
  }
  report(rows);
  if (paths.length > 0 && ran === 0) {
    complain(`No test of these stages is in a file whose path contains ${paths.join(' or ')}`);
    return 1;
  }
  return rows.every(({ failed }) => failed.length === 0) ? 0 : 1;
}

async function runScript(script) {
  const { ok, seconds } = await runStep(script, ['run', '--silent', script]);
  return {
    seconds,
    passed: ok ? 1 : 0,
    failed: ok ? [] : [`${script}   again: npm run ${script}`],
    skipped: [],
    files: [],
  };
}

/** Runs the suites of one project of jest.config.mjs. */
async function runProject({ workers = 2, engine, env }, project, paths, results) {
  const nothing = { seconds: 0, passed: 0, failed: [], files: [] };
  if (project === 'kubernetes' && process.env.KUBECONFIG === undefined) {
    return { ...nothing, skipped: ['all suites in pods [needs a cluster in KUBECONFIG]'] };
  }
  if (engine && project !== 'smoke' && !(await engineAnswers())) {
    return { ...nothing, skipped: [`all suites of ${project} [needs a Docker engine]`] };
  }
  const outputFile = join(results, `${project}.json`);
  const { ok, seconds } = await runStep(
    project,
    [
      ...['run', '--silent', 'jest', '--', `--selectProjects=${project}`],
      ...['--json', `--outputFile=${outputFile}`, `--maxWorkers=${workers}`],
      `--bail=${MOST_FAILED_FILES}`,
      // A path picks tests of some projects; the others then have none.
      ...(paths.length > 0 ? ['--passWithNoTests', ...paths] : []),
    ],
    env,
  );
  const counted = countTests(outputFile, project);
  if (!ok && counted.failed.length === 0) {
    counted.failed.push(
      `${project} left something behind, or ended after ${MOST_FAILED_FILES} failed files`,
    );
  }
  return { seconds, ...counted };
}

function report(rows) {
  const files = rows.flatMap((row) => row.files).toSorted((a, b) => b.seconds - a.seconds);
  if (files.length > 0) {
    say(`\nThe slowest test files, in seconds:`);
    for (const { path, seconds } of files.slice(0, SLOWEST)) {
      say(`  ${seconds.toFixed(0).padStart(5)}  ${path}`);
    }
  }
  say(`\n${'stage'.padEnd(12)} ${'seconds'.padStart(8)}  passed  failed  skipped`);
  for (const { name, seconds, passed, failed, skipped } of rows) {
    const counts = [passed, failed.length, skipped.length].map((count) => `${count}`.padStart(7));
    say(`${name.padEnd(12)} ${seconds.toFixed(1).padStart(8)} ${counts.join(' ')}`);
  }
  const skipped = rows.flatMap((row) => row.skipped.map((text) => `${row.name}: ${text}`));
  if (skipped.length > 0) say(`\nSKIPPED: ${skipped.length} tests did not run`);
  for (const text of skipped) say(`  - ${text}`);
  const failed = rows.flatMap((row) => row.failed.map((text) => `${row.name}: ${text}`));
  if (failed.length > 0) say(`\nFAILED: ${failed.length}`);
  for (const text of failed) say(`  ● ${text}`);
  const passed = rows.reduce((sum, row) => sum + row.passed, 0);
  say(`\n${passed} passed, ${failed.length} failed, ${skipped.length} skipped`);
}
