import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { ROOT } from './project.mjs';
import { complain, say } from './output.mjs';

/** Far above what any step takes; a suite that hangs must not hang for ever. */
const STEP_TIMEOUT_MS = 40 * 60_000;

/**
 * Runs npm with its output shown.
 *
 * @param {string} name the heading of the output
 * @param {string[]} args
 * @param {Record<string, string>} [env] added to the environment
 * @returns {Promise<{ok: boolean, seconds: number}>}
 */
export async function runStep(name, args, env = {}) {
  say(`\n=== ${name}`);
  const started = performance.now();
  const ok = await new Promise((resolve) => {
    const child = spawn('npm', args, {
      cwd: ROOT,
      env: { ...process.env, ...env },
      // Jest writes for people on standard error, and with --json the results on standard output.
      stdio: ['ignore', args.includes('jest') ? 'ignore' : 'inherit', 'inherit'],
      timeout: STEP_TIMEOUT_MS,
    });
    child.once('error', (error) => {
      complain(error.message);
      resolve(false);
    });
    child.once('exit', (code) => resolve(code === 0));
  });
  return { ok, seconds: (performance.now() - started) / 1000 };
}

/**
 * Counts what a Jest run did, from its JSON results.
 *
 * @param {string} file
 * @param {string} project
 * @returns {{passed: number, failed: string[], skipped: string[], files: {path: string, seconds: number}[]}} a line for
 * each test that failed, with how to run it again, and for each file that could not be run
 */
export function countTests(file, project) {
  let results;
  try {
    results = JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return { passed: 0, failed: [], skipped: [], files: [] };
  }
  const failed = [];
  const skipped = [];
  const files = [];
  for (const { name, status, startTime, endTime, assertionResults } of results.testResults) {
    const path = relative(ROOT, name);
    if (endTime > startTime) files.push({ path, seconds: (endTime - startTime) / 1000 });
    const again = `again: npm run jest -- ${path} --selectProjects ${project}`;
    const failures = assertionResults.filter((test) => test.status === 'failed');
    for (const { fullName } of failures) failed.push(`${path} › ${fullName}   ${again}`);
    if (failures.length === 0 && status === 'failed') failed.push(`${path}   ${again}`);
    for (const { fullName, status: verdict } of assertionResults) {
      if (['pending', 'skipped', 'todo', 'disabled'].includes(verdict)) skipped.push(fullName);
    }
  }
  return { passed: results.numPassedTests, failed, skipped, files };
}
