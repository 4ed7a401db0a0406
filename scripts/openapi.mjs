// Writes openapi.json from the application; with --check, fails when it is not what the application says, or not sound.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ROOT, StepError, prepare } from './lib/project.mjs';
import { complain, say } from './lib/output.mjs';

const FILE = join(ROOT, 'openapi.json');

try {
  prepare(complain);
  const written = `${JSON.stringify(await describe(), null, 2)}\n`;
  if (process.argv.includes('--check')) {
    if (readCommitted() !== written)
      throw new StepError('openapi.json is not what the application says: npm run openapi');
    await requireSound();
  } else {
    writeFileSync(FILE, written);
    say('Wrote openapi.json');
  }
} catch (error) {
  if (!(error instanceof StepError)) throw error;
  complain(error.message);
  process.exitCode = 1;
}
// The application was never started, but what it imports may keep timers.
process.exit();

async function describe() {
  const module = join(ROOT, 'dist', 'src', 'offline-document.js');
  const { offlineDocument } = await import(pathToFileURL(module).href);
  return offlineDocument('3.1.0');
}

function readCommitted() {
  try {
    return readFileSync(FILE, 'utf8');
  } catch {
    return undefined;
  }
}

/** The rules of redocly.yaml; the library and not its command, which calls home. */
async function requireSound() {
  const { formatProblems, getTotals, lint, loadConfig } = await import('@redocly/openapi-core');
  const config = await loadConfig({ configPath: join(ROOT, 'redocly.yaml') });
  const problems = await lint({ ref: FILE, config });
  const totals = getTotals(problems);
  if (problems.length > 0) formatProblems(problems, { totals, format: 'codeframe' });
  if (totals.errors + totals.warnings > 0) throw new StepError('openapi.json is not sound');
}
