import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NODE, ROOT, StepError, prepare } from './lib/project.mjs';
import { countTests, runStage } from './lib/stages.mjs';
import { engineAnswers } from './lib/docker-engine.mjs';
import { complain, say } from './lib/output.mjs';
import { ensureSystemPackages } from './lib/system-packages.mjs';

/**
 * Slow suites run only on request: the real agent programs (which installs missing ones), and the end-to-end suites in
 * containers, the longer ones in sprites, and those in pods.
 */
const LONG_RUNS = {
  '--runtimes': [['runtimes']],
  '--containers': [['docker-e2e']],
  '--sprites': [['sprites-e2e'], ['sprites-e2e-long'], ['sprites-software']],
  '--kubernetes': [['kubernetes']],
};
const jestArgs = process.argv.slice(2).filter((argument) => !(argument in LONG_RUNS));
const longRun = process.argv.find((argument) => argument in LONG_RUNS);
const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
const results = mkdtempSync(join(tmpdir(), 'test-results-'));

const CHECKS = longRun ? [] : ['format', 'lint', 'types', 'boundaries', 'unused', 'openapi'];
/**
 * One group after the other. A browser, an engine and machines are waited for most of the time, so they share the
 * machine.
 */
const PROJECTS = longRun
  ? LONG_RUNS[longRun]
  : [['unit'], ['integration'], ['console', 'docker', 'sprites'], ['sprites-e2e'], ['runtimes']];
/**
 * How many suites run in parallel. Integration suites mostly wait for processes and limits, so three fit; one agent
 * program or one engine uses the whole machine, and machines of the fake of Sprites share one limit of processes.
 */
const WORKERS = {
  integration: 3,
  console: 1,
  docker: 1,
  sprites: 1,
  'docker-e2e': 1,
  'sprites-e2e': 1,
  'sprites-e2e-long': 1,
  'sprites-software': 1,
  kubernetes: 1,
  runtimes: 1,
};
if (longRun === '--runtimes') process.env.AGENT_CLI_TESTS = 'install';

try {
  // First: among them is the compiler that the build needs.
  ensureSystemPackages(say);
  prepare(say);
  const stopPreparing = longRun || jestArgs.length > 0 ? () => undefined : prepareSoftware();
  try {
    process.exitCode = await runAll();
  } finally {
    stopPreparing();
  }
} catch (error) {
  if (!(error instanceof StepError)) throw error;
  complain(error.message);
  process.exitCode = 1;
} finally {
  rmSync(results, { recursive: true, force: true });
}

/**
 * Begins to make the base system of sandboxes beside the checks. On a new machine the first suites that need it would
 * otherwise wait for it together. Where it cannot be made, those suites say why.
 *
 * @returns {() => void} ends what is still going on
 */
function prepareSoftware() {
  const child = spawn(NODE, ['--no-warnings', join('test', 'support', 'prepare-software.mjs')], {
    cwd: ROOT,
    stdio: 'ignore',
  });
  child.once('error', () => undefined);
  return () => child.kill();
}

/** Runs every stage, whatever the others gave, and reports. */
async function runAll() {
  const stages = [];
  const total = { passed: 0, failed: 0, skipped: [] };
  if (!longRun) {
    total.skipped.push('docker-e2e: suites in containers [npm run test:containers]');
    total.skipped.push('sprites-e2e-long: longer suites in sprites [npm run test:sprites]');
    total.skipped.push('sprites-software: agent programs in sprites [npm run test:sprites]');
    total.skipped.push('kubernetes: suites in pods [npm run test:kubernetes]');
  }
  for (const check of CHECKS)
    if (`check:${check}` in scripts) stages.push(await runStage(check, [`check:${check}`]));
  for (const group of PROJECTS) {
    const ended = await Promise.all(group.map((project) => runProject(project, total)));
    stages.push(...ended.filter((stage) => stage !== null));
  }
  report(stages, total);
  return stages.every(({ ok }) => ok) && total.failed === 0 ? 0 : 1;
}

/** Runs the suites of one project of Jest's and adds what they gave to the total. `null`: it was skipped. */
async function runProject(project, total) {
  if (project === 'docker-e2e' && !(await engineAnswers())) {
    total.skipped.push('docker-e2e: suites in containers [needs a Docker engine]');
    return null;
  }
  if (project === 'kubernetes' && process.env.KUBECONFIG === undefined) {
    total.skipped.push('kubernetes: suites in pods [needs a cluster in KUBECONFIG]');
    return null;
  }
  if (project.startsWith('sprites-') && !canMakeMachines()) {
    total.skipped.push(`${project}: suites in sprites [needs root and namespaces]`);
    return null;
  }
  const outputFile = join(results, `${project}.json`);
  const stage = await runStage(project, [
    'jest',
    '--',
    `--selectProjects=${project}`,
    '--json',
    `--outputFile=${outputFile}`,
    `--maxWorkers=${WORKERS[project] ?? 2}`,
    // A path that is given picks tests of one project; the other then has none.
    ...(jestArgs.length > 0 ? ['--passWithNoTests', ...jestArgs] : []),
  ]);
  const counted = countTests(outputFile);
  if (!stage.ok && counted.failed === 0) counted.failed = 1;
  total.passed += counted.passed;
  total.failed += counted.failed;
  total.skipped.push(...counted.skipped);
  return stage;
}

/** Whether the fake of the interface of Sprites works here. */
function canMakeMachines() {
  const args = ['--mount', '--pid', '--net', '--fork', 'true'];
  return process.getuid() === 0 && spawnSync('unshare', args).status === 0;
}

function report(stages, { passed, failed, skipped }) {
  if (skipped.length > 0) {
    say(`\nSKIPPED: ${skipped.length} tests did not run`);
    for (const name of skipped) say(`  - ${name}`);
  }
  say('');
  for (const { name, ok, seconds } of stages)
    say(`${ok ? 'ok    ' : 'FAILED'}  ${name.padEnd(12)} ${seconds.toFixed(1).padStart(7)} s`);
  say(`\n${passed} passed, ${failed} failed, ${skipped.length} skipped`);
}
