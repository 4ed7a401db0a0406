import { runTypescript } from '../support/typescript-hooks.mjs';

runTypescript();
// The victims' and the attackers' clients are processes of their own, which the harness starts (part.ts).
const [part] = process.argv.slice(2);
if (part === 'victims') await import('./victims-main.ts');
else if (part === 'attackers') await import('./attackers-main.ts');
else await import('./hostile-cli.ts');
