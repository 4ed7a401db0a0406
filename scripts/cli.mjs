import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { join } from 'node:path';
import { NODE, ROOT, StepError, prepare } from './lib/project.mjs';
import { complain } from './lib/output.mjs';

try {
  // Standard output belongs to the command: it may be read by a script.
  prepare(complain);
} catch (error) {
  if (!(error instanceof StepError)) throw error;
  complain(error.message);
  process.exit(1);
}
const main = join(ROOT, 'dist', 'src', 'cli', 'main.js');
const command = spawn(NODE, ['--enable-source-maps', main, ...process.argv.slice(2)], {
  stdio: 'inherit',
});
// The terminal signals the whole group; this one only waits and passes on what it alone was sent.
process.on('SIGINT', () => undefined);
process.on('SIGTERM', () => command.kill('SIGTERM'));
command.once('exit', (code, signal) => {
  process.exitCode = code ?? 128 + constants.signals[signal];
});
