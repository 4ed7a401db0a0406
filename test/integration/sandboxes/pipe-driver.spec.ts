import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from '@jest/globals';
import {
  describeSandboxDriver,
  oneAfterTheOther,
} from '../../contracts/sandbox-driver.contract.js';
import { PipeDriver } from '../../support/pipe-driver.js';
import { isRoot, TEST_LIMITS } from './local-installations.js';

/** One user for all sandboxes of a test: the driver does not isolate them. */
const AGENT = 1_990_000_300;

if (isRoot) {
  describeSandboxDriver('a process behind a pipe', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'pipes-'));
    await chmod(folder, 0o711);
    const make = () => new PipeDriver({ folder, agentUser: AGENT, limits: TEST_LIMITS });
    return {
      driver: make(),
      isolated: false,
      again: oneAfterTheOther(make),
      dispose: () => rm(folder, { recursive: true }),
    };
  });
} else {
  describe('sandbox driver: a process behind a pipe', () => {
    it.skip('SKIPPED: only root can give an agent a user of its own', () => undefined);
  });
}
