import { jest } from '@jest/globals';

// Real processes on a busy machine: generous, so that only what hangs fails.
jest.setTimeout(60_000);
