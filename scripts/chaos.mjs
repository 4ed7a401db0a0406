import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ensureSystemPackages } from './lib/system-packages.mjs';
import { complain, say } from './lib/output.mjs';
import { NODE, ROOT, StepError, prepare } from './lib/project.mjs';

try {
  prepare(say);
  ensureSystemPackages(say);
  const child = spawn(NODE, [join(ROOT, 'test/faults/main.mjs'), ...process.argv.slice(2)], {
    cwd: ROOT,
    stdio: 'inherit',
  });
  // Ctrl-C reaches both; this one waits until the other has cleared up.
  process.on('SIGINT', () => undefined);
  const [code] = await once(child, 'close');
  process.exitCode = code ?? 1;
} catch (error) {
  if (!(error instanceof StepError)) throw error;
  complain(error.message);
  process.exitCode = 1;
}
