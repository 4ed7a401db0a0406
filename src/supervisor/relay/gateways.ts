import { isIP, isIPv4 } from 'node:net';
import type { PrivateHost } from '../../common/egress-network.js';
import { normalizeHostName } from '../../common/host-pattern.js';
import { SERVED_PORTS, type ListenerSpec } from './listener-plan.js';

/** A model gateway of the operator, which every sandbox may reach, even at a private or loopback address. */
export interface Gateway {
  /** A host name, `localhost`, or an IP literal without brackets. */
  host: string;
  port: number;
}

/** How programs in a sandbox reach one gateway. */
export interface GatewayRoute {
  gateway: Gateway;
  /** The name to serve in DNS; `undefined` for a gateway at a loopback literal. */
  name?: string;
  /** The loopback addresses of the gateway inside the sandbox; empty for a gateway that is reached by name. */
  literals: readonly string[];
}

/**
 * Decides how each gateway is reached:
 * - a host name: by that name;
 * - a loopback literal or `localhost`: at the same loopback address and port inside the sandbox;
 * - any other literal: as `gateway-<n>.internal`, where n is its place in the list counted from 1, because the sandbox
 *   has no route to it. TLS to such a gateway needs a certificate for that name.
 * @throws RangeError for a gateway that is neither a name nor an address
 */
export function routeGateways(gateways: readonly Gateway[]): GatewayRoute[] {
  return gateways.map((gateway, index) => {
    const host = gateway.host.toLowerCase();
    if (host === 'localhost' || host.endsWith('.localhost')) {
      return { gateway, literals: ['127.0.0.1', '::1'] };
    }
    if ((isIPv4(host) && host.startsWith('127.')) || host === '::1') {
      return { gateway, literals: [host] };
    }
    const name =
      isIP(host) === 0 ? normalizeHostName(host) : `gateway-${String(index + 1)}.internal`;
    if (name === undefined) throw new RangeError(`not a gateway host: ${gateway.host}`);
    return { gateway, name, literals: [] };
  });
}

/**
 * The additional listeners that the gateways need.
 * @param addressOf returns the synthetic address of a gateway's name
 */
export function gatewayListeners(
  routes: readonly GatewayRoute[],
  addressOf: (name: string) => string,
): ListenerSpec[] {
  const byKey = new Map<string, ListenerSpec>();
  for (const { gateway, name, literals } of routes) {
    for (const address of name === undefined ? literals : [addressOf(name)]) {
      // The wildcard listeners are IPv4 and already cover these addresses.
      if (isIPv4(address) && SERVED_PORTS.includes(gateway.port)) continue;
      byKey.set(endpointKey(address, gateway.port), {
        role: 'relay',
        address,
        port: gateway.port,
        ...(isIPv4(address) ? {} : { optional: true }),
      });
    }
  }
  return [...byKey.values()];
}

const ANY_ADDRESS = '0.0.0.0';

/**
 * The additional listeners that the operator's private hosts need for their ports. A pattern needs one on all addresses,
 * because its names only get their addresses later.
 * @param addressOf returns the synthetic address of a name
 */
export function privateListeners(
  hosts: readonly PrivateHost[],
  addressOf: (name: string) => string,
): ListenerSpec[] {
  return hosts.flatMap(({ host, ports }) => {
    const address = host.kind === 'exact' ? addressOf(host.name) : ANY_ADDRESS;
    return ports
      .filter((port) => !SERVED_PORTS.includes(port))
      .map((port): ListenerSpec => ({ role: 'relay', address, port }));
  });
}

/** Leaves out repeated listeners, and those that another listener on all addresses covers. */
export function withoutCovered(listeners: readonly ListenerSpec[]): ListenerSpec[] {
  const covered = new Set(
    listeners.filter(({ address }) => address === ANY_ADDRESS).map(({ port }) => port),
  );
  const needed = listeners.filter(
    ({ address, port }) => address === ANY_ADDRESS || !isIPv4(address) || !covered.has(port),
  );
  return [...new Map(needed.map((spec) => [endpointKey(spec.address, spec.port), spec])).values()];
}

/** Formats an address or name with a port. */
export function endpointKey(host: string, port: number): string {
  return `${host} ${String(port)}`;
}
