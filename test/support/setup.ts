import { jest } from '@jest/globals';

// Real processes on a busy machine: generous, so that only what hangs fails. Tests set a limit of their own only above it.
jest.setTimeout(300_000);
