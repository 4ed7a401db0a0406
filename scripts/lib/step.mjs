import { join } from 'node:path';
import { ROOT } from './paths.mjs';

/** The Node that the project locks, which need not be the one that runs these scripts. */
export const NODE = join(ROOT, 'node_modules', '.bin', 'node');

/** A step that failed; the message is all that the operator needs. */
export class StepError extends Error {}
