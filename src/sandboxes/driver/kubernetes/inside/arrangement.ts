import type { PrivateHost } from '../../../../common/egress-network.js';
import type { Gateway } from '../../../../supervisor/relay/gateways.js';
import type { GatewayLink } from '../../../../supervisor/relay/relay-thread.js';
import type { ShimSetup } from '../../../../supervisor/shim/shim-calls.js';
import type { NetworkPolicy } from '../../sandbox-driver.js';

/** The first line that a worker sends on each connection, as JSON: what the pod needs and cannot store. */
export interface Arrangement {
  /** How the pod reaches the gateway, with the secret of the sandbox. Without one, nothing of the network is served. */
  link?: GatewayLink | undefined;
  gateways: readonly Gateway[];
  privateHosts: readonly PrivateHost[];
  /** The new network policy. Default: the one before. */
  network?: NetworkPolicy | undefined;
}

/** What the relay of a pod gets. */
export type PodRelaySetup = Required<Pick<Arrangement, 'link' | 'gateways' | 'privateHosts'>> & {
  link: GatewayLink;
  policy: NetworkPolicy;
};

/** The arguments of the supervisor's container. */
export interface PodSetup {
  shim: Pick<ShimSetup, 'socket'>;
  /** A folder for sockets that only this container has. */
  sockets: string;
  /** The folder for launches and the network policy, which only this container has, and which is kept with the volume. */
  state: string;
  /** After so long without a launch or a worker, the pod ends. `first`: before the first turn, when it waits for a session. */
  idleSeconds: { first: number; later: number };
}

/** The socket for workers below the folder for sockets. */
export const WORKER_SOCKET = 'supervisor';
