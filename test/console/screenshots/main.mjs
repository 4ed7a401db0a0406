import { readFileSync } from 'node:fs';
import { registerHooks, stripTypeScriptTypes } from 'node:module';
import { fileURLToPath } from 'node:url';
import startDatabase from '../../support/global-setup.mjs';
import stopDatabase from '../../support/global-teardown.mjs';
import { runTypescript } from '../../support/typescript-hooks.mjs';

runTypescript();
// The helpers of the suites have constructors that declare members, which Node does not only strip.
registerHooks({
  load(url, context, next) {
    if (!url.endsWith('.ts')) return next(url, context);
    const source = readFileSync(fileURLToPath(url), 'utf8');
    return {
      format: 'module',
      source: stripTypeScriptTypes(source, { mode: 'transform' }),
      shortCircuit: true,
    };
  },
});
await startDatabase();
try {
  await import('./screenshots.ts');
} finally {
  await stopDatabase();
}
