import { runHarness } from './lib/run-harness.mjs';

await runHarness('test/faults/main.mjs');
