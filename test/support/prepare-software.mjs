import { runTypescript } from './typescript-hooks.mjs';

// Makes the base system that suites share, where it is not there yet.
runTypescript();
const { prepareSoftware } = await import('./software.ts');
await prepareSoftware();
