// Takes the screenshots of docs/console.md from the built service in a real browser.
import { runHarness } from './lib/run-harness.mjs';

await runHarness('test/console/screenshots/main.mjs');
