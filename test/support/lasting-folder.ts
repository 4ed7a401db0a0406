import { tmpdir } from 'node:os';
import { dirname } from 'node:path';

/** The folder for temporary files that outlive a run. That of the run itself is removed at its end. */
export const lastingFolder = (): string =>
  process.env['TEST_RUN'] === undefined ? tmpdir() : dirname(tmpdir());
