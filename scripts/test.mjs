import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT, StepError, prepare } from './lib/project.mjs';
import { countTests, runStage } from './lib/stages.mjs';
import { engineAnswers } from './lib/docker-engine.mjs';
import { complain, say } from './lib/output.mjs';
import { ensureSystemPackages } from './lib/system-packages.mjs';

const jestArgs = process.argv.slice(2).filter((argument) => argument !== '--runtimes');
/** Only the suite of the real agent programs, installing what is missing of them. */
const onlyRuntimes = process.argv.includes('--runtimes');
const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
const results = mkdtempSync(join(tmpdir(), 'test-results-'));

const CHECKS = onlyRuntimes ? [] : ['format', 'lint', 'types', 'boundaries', 'unused', 'openapi'];
const PROJECTS = onlyRuntimes
  ? ['runtimes']
  : ['unit', 'integration', 'docker', 'docker-e2e', 'runtimes'];
if (onlyRuntimes) process.env.AGENT_CLI_TESTS = 'install';

try {
  prepare(say);
  ensureSystemPackages(say);
  process.exitCode = await runAll();
} catch (error) {
  if (!(error instanceof StepError)) throw error;
  complain(error.message);
  process.exitCode = 1;
} finally {
  rmSync(results, { recursive: true, force: true });
}

/** Runs every stage, whatever the others gave, and reports. */
async function runAll() {
  const stages = [];
  for (const check of CHECKS)
    if (`check:${check}` in scripts) stages.push(await runStage(check, [`check:${check}`]));
  const total = { passed: 0, failed: 0, skipped: [] };
  for (const project of PROJECTS) {
    if (project === 'docker-e2e' && !(await engineAnswers())) {
      total.skipped.push('docker-e2e: all suites, once more in containers [needs a Docker engine]');
      continue;
    }
    const outputFile = join(results, `${project}.json`);
    const stage = await runStage(project, [
      'jest',
      '--',
      `--selectProjects=${project}`,
      '--json',
      `--outputFile=${outputFile}`,
      // One such program, or one engine, is enough for the machine.
      ...(['docker', 'docker-e2e', 'runtimes'].includes(project) ? ['--runInBand'] : []),
      // A path that is given picks tests of one project; the other then has none.
      ...(jestArgs.length > 0 ? ['--passWithNoTests', ...jestArgs] : []),
    ]);
    const counted = countTests(outputFile);
    stages.push(stage);
    if (!stage.ok && counted.failed === 0) counted.failed = 1;
    total.passed += counted.passed;
    total.failed += counted.failed;
    total.skipped.push(...counted.skipped);
  }
  report(stages, total);
  return stages.every(({ ok }) => ok) && total.failed === 0 ? 0 : 1;
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
