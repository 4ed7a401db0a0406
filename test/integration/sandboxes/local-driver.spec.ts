import { describe, it } from '@jest/globals';
import { describeSandboxDriver } from '../../contracts/sandbox-driver.contract.js';
import { installAsOrdinaryUser, installHere, isRoot } from './local-installations.js';

const self = isRoot ? 'root' : 'ordinary user';

describeSandboxDriver(`local, strict, ${self}`, () => installHere('strict'));
describeSandboxDriver(`local, degraded, ${self}`, () => installHere('degraded'));

if (isRoot) {
  describeSandboxDriver('local, strict, ordinary user', () => installAsOrdinaryUser('strict'));
  describeSandboxDriver('local, degraded, ordinary user', () => installAsOrdinaryUser('degraded'));
} else {
  describe('sandbox driver: local, root', () => {
    it.skip('SKIPPED: only a test run as root can test the driver as root', () => undefined);
  });
}
