import type { NetworkPolicy } from '../../sandbox-driver.js';
import type { Gateway } from '../../shared/relay/gateways.js';

/** What a sandbox's relay is started with. */
export interface RelaySetup {
  /** What holds until another policy is set. */
  policy: NetworkPolicy;
  gateways: readonly Gateway[];
  /** Where the egress listens. */
  egress: string;
  /** The file that keeps the policy over restarts. */
  policyFile: string;
  /** Where `relay-control.js` comes in. */
  control: string;
}

/** What a relay answers to one that gives it a policy, or asks for the one that holds. */
export type ControlAnswer = { ok: true; policy: NetworkPolicy } | { ok: false; message: string };
