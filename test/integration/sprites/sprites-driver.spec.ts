import { describeSandboxDriver } from '../../contracts/sandbox-driver.contract.js';
import { describeWith } from '../../support/requirements.js';
import { installSprites } from './sprites-installations.js';

describeWith(['root', 'mount namespaces'], 'sprites', () => {
  describeSandboxDriver('sprites', () => installSprites());
});
