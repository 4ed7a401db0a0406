import { runTypescript } from '../support/typescript-hooks.mjs';

runTypescript();
await import('./chaos-cli.ts');
