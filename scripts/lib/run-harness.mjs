import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { complain, say } from './output.mjs';
import { NODE, ROOT, StepError, prepare } from './project.mjs';
import { ensureSystemPackages } from './system-packages.mjs';

/**
 * Builds the service, then runs a test program with this command's arguments.
 *
 * @param {string} entry its path below the project's folder
 */
export async function runHarness(entry) {
  try {
    prepare(say);
    ensureSystemPackages(say);
    const child = spawn(NODE, [join(ROOT, entry), ...process.argv.slice(2)], {
      cwd: ROOT,
      stdio: 'inherit',
    });
    // Ctrl-C reaches both processes; this one waits until the other has cleaned up.
    process.on('SIGINT', () => undefined);
    process.on('SIGTERM', () => child.kill('SIGTERM'));
    const [code] = await once(child, 'close');
    process.exitCode = code ?? 1;
  } catch (error) {
    if (!(error instanceof StepError)) throw error;
    complain(error.message);
    process.exitCode = 1;
  }
}
