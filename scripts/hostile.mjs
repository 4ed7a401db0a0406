import { runHarness } from './lib/run-harness.mjs';

await runHarness('test/hostile/main.mjs');
