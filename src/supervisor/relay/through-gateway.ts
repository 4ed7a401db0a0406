import { gatewayAt, holdGateway } from '../../gateway/client.js';
import type { RelayOptions } from './relay.js';
import type { GatewayLink } from './relay-thread.js';

/**
 * The options of a relay that leaves everything outside of the sandbox to the gateway. Keeps a gateway on this machine
 * running; one on the network is a service of its own.
 */
export function throughGateway({
  address,
  sandboxId,
}: GatewayLink): Required<Pick<RelayOptions, 'egress' | 'broker'>> {
  const gateway = gatewayAt(address);
  if (typeof address === 'string') holdGateway(address);
  return { egress: gateway, broker: (signal) => gateway.broker(sandboxId, signal) };
}
