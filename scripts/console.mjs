// Builds the console into dist/console; with --client, only writes the types of the interface that it calls; with --size,
// only says what the first page of a built console loads.
import { join } from 'node:path';
import { buildConsole, checkFirstLoad, writeClient } from './lib/console.mjs';
import { ROOT, StepError } from './lib/project.mjs';
import { complain, say } from './lib/output.mjs';

try {
  const [, , option, folder = join(ROOT, 'dist', 'console')] = process.argv;
  if (option === '--client') writeClient();
  else if (option === '--size')
    say(`The first page loads ${checkFirstLoad(folder)} bytes, compressed`);
  else buildConsole();
} catch (error) {
  if (!(error instanceof StepError)) throw error;
  complain(error.message);
  process.exitCode = 1;
}
