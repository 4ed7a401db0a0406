import { describeSandboxDriver } from '../../contracts/sandbox-driver.contract.js';
import { describeWith } from '../../support/requirements.js';
import { installDocker } from './docker-installations.js';

describeWith(['a Docker engine', 'root', 'debootstrap'], 'docker', () => {
  describeSandboxDriver('docker', () => installDocker());
});
