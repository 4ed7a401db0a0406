// Writes the OpenAPI documents from the application; with --check, fails when one is not what it says, or not sound.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ROOT, StepError, prepare } from './lib/project.mjs';
import { complain, say } from './lib/output.mjs';

/** File → version of OpenAPI. */
const DOCUMENTS = { 'openapi.json': '3.1.0', 'openapi-3.0.json': '3.0.3' };

try {
  prepare(complain);
  const { offlineDocument } = await import(
    pathToFileURL(join(ROOT, 'dist', 'src', 'offline-document.js')).href
  );
  for (const [file, version] of Object.entries(DOCUMENTS)) {
    const written = `${JSON.stringify(await offlineDocument(version), null, 2)}\n`;
    if (process.argv.includes('--check')) {
      if (readCommitted(file) !== written)
        throw new StepError(`${file} is not what the application says: npm run openapi`);
      await requireSound(file);
    } else {
      writeFileSync(join(ROOT, file), written);
      say(`Wrote ${file}`);
    }
  }
} catch (error) {
  if (!(error instanceof StepError)) throw error;
  complain(error.message);
  process.exitCode = 1;
}
// The application was never started, but what it imports may keep timers.
process.exit();

function readCommitted(file) {
  try {
    return readFileSync(join(ROOT, file), 'utf8');
  } catch {
    return undefined;
  }
}

/** The rules of redocly.yaml; the library and not its command, which calls home. */
async function requireSound(file) {
  const { formatProblems, getTotals, lint, loadConfig } = await import('@redocly/openapi-core');
  const config = await loadConfig({ configPath: join(ROOT, 'redocly.yaml') });
  const problems = await lint({ ref: join(ROOT, file), config });
  const totals = getTotals(problems);
  if (problems.length > 0) formatProblems(problems, { totals, format: 'codeframe' });
  if (totals.errors + totals.warnings > 0) throw new StepError(`${file} is not sound`);
}
