import { jest } from '@jest/globals';
import { PATIENCE_MS } from './patience.js';

// Real processes on a busy machine: generous, so that only what hangs fails. Tests set a limit of their own only above it.
jest.setTimeout(Math.max(300_000, 2.5 * PATIENCE_MS));
