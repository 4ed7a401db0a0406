import type { PrivateHost } from '../../../../common/egress-network.js';
import type { GatewayAddress } from '../../../../gateway/client.js';
import type { NetworkPolicy } from '../../sandbox-driver.js';
import type { Gateway } from '../../../../supervisor/relay/gateways.js';
import type { RelayLimits } from '../../../../supervisor/relay/limits.js';

/** The arguments of a sandbox's relay. */
export interface RelaySetup {
  /** The policy until another one is set. */
  policy: NetworkPolicy;
  gateways: readonly Gateway[];
  /** Names that the gateway connects to at further ports. */
  privateHosts?: readonly PrivateHost[] | undefined;
  /** Default: the relay's own limits. */
  limits?: Partial<RelayLimits> | undefined;
  /** The socket of the gateway, or where it is on the network. */
  gateway: GatewayAddress;
  sandboxId: string;
  /** The file that keeps the policy across restarts. */
  policyFile: string;
  /** The socket for `relay-control.js`. */
  control: string;
}

/** A relay's answer to a new policy or a query. */
export type ControlAnswer = { ok: true; policy: NetworkPolicy } | { ok: false; message: string };
