import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { ROOT } from './project.mjs';
import { complain, say } from './output.mjs';

/** Far above what any stage takes; a suite that hangs must not hang for ever. */
const STAGE_TIMEOUT_MS = 40 * 60_000;

/**
 * Runs one of the package's scripts with its output shown.
 *
 * @param {string} name what the summary calls it
 * @param {string[]} script the script's name and its arguments
 * @returns {Promise<{name: string, ok: boolean, seconds: number}>}
 */
export async function runStage(name, script) {
  say(`\n=== ${name}`);
  const started = performance.now();
  const ok = await new Promise((resolve) => {
    const child = spawn('npm', ['run', '--silent', ...script], {
      cwd: ROOT,
      // Jest writes for people on standard error, and with --json the results on standard output.
      stdio: ['ignore', script[0] === 'jest' ? 'ignore' : 'inherit', 'inherit'],
      timeout: STAGE_TIMEOUT_MS,
    });
    child.once('error', (error) => {
      complain(error.message);
      resolve(false);
    });
    child.once('exit', (code) => resolve(code === 0));
  });
  return { name, ok, seconds: (performance.now() - started) / 1000 };
}

/**
 * Counts what a Jest run did, from its JSON results.
 *
 * @param {string} file
 * @returns {{passed: number, failed: number, skipped: string[]}} a suite that did not run is a failure
 */
export function countTests(file) {
  let results;
  try {
    results = JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return { passed: 0, failed: 1, skipped: [] };
  }
  const skipped = results.testResults.flatMap(({ assertionResults }) =>
    assertionResults
      .filter(({ status }) => ['pending', 'skipped', 'todo', 'disabled'].includes(status))
      .map(({ fullName }) => fullName),
  );
  return {
    passed: results.numPassedTests,
    failed: results.numFailedTests + results.numRuntimeErrorTestSuites,
    skipped,
  };
}
