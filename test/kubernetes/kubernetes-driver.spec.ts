import { describeSandboxDriver } from '../contracts/sandbox-driver.contract.js';
import { describeWith } from '../support/requirements.js';
import { installKubernetes } from './kubernetes-installations.js';

describeWith(['a Kubernetes cluster'], 'kubernetes', () => {
  describeSandboxDriver('kubernetes', () => installKubernetes());
});
