import { isIP, isIPv4 } from 'node:net';
import { normalizeHostName } from '../../../common/host-pattern.js';
import { SERVED_PORTS } from './listener-plan.js';
import type { ListenerSpec } from './listener-plan.js';

/** A model gateway of the operator's: may be reached from every sandbox, even at a private or loopback address. */
export interface Gateway {
  /** A host name, `localhost`, or an IP literal without brackets. */
  host: string;
  port: number;
}

/** How one gateway is reached from inside of a sandbox. */
export interface GatewayRoute {
  gateway: Gateway;
  /** The host to put into the gateway's URL for a program inside of a sandbox. */
  sandboxHost: string;
  /** The name to serve in DNS; `undefined` for a gateway that is reached at a loopback literal. */
  name?: string;
  /** The loopback addresses that stand for it inside; empty for a gateway that is reached by name. */
  literals: readonly string[];
}

/**
 * Works out how each gateway is reached:
 * - a host name by that name;
 * - a loopback literal, or `localhost`, at the same loopback address and port inside of the sandbox;
 * - any other literal, to which nothing inside has a route, as `gateway-<n>.internal`, n being its place in the list
 *   counted from 1. TLS to such a gateway needs a certificate for that name.
 * @throws RangeError for a gateway that is neither a name nor an address
 */
export function routeGateways(gateways: readonly Gateway[]): GatewayRoute[] {
  return gateways.map((gateway, index) => {
    const host = gateway.host.toLowerCase();
    if (host === 'localhost' || host.endsWith('.localhost')) {
      return { gateway, sandboxHost: host, literals: ['127.0.0.1', '::1'] };
    }
    if ((isIPv4(host) && host.startsWith('127.')) || host === '::1') {
      return { gateway, sandboxHost: host, literals: [host] };
    }
    const name =
      isIP(host) === 0 ? normalizeHostName(host) : `gateway-${String(index + 1)}.internal`;
    if (name === undefined) throw new RangeError(`not a gateway host: ${gateway.host}`);
    return { gateway, sandboxHost: name, name, literals: [] };
  });
}

/**
 * The listeners that the gateways need beside the common ones.
 * @param addressOf the synthetic address of a gateway's name
 */
export function gatewayListeners(
  routes: readonly GatewayRoute[],
  addressOf: (name: string) => string,
): ListenerSpec[] {
  const byKey = new Map<string, ListenerSpec>();
  for (const { gateway, name, literals } of routes) {
    for (const address of name === undefined ? literals : [addressOf(name)]) {
      // The wildcard listeners are IPv4 and take these already.
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

/**
 * A gateway's URL as a program inside of a sandbox has to write it; any other URL as it is.
 * @param url absolute, http or https
 */
export function urlInside(gateways: readonly Gateway[], url: string): string {
  const inside = new URL(url);
  const host = inside.hostname.replace(/^\[|\]$/g, '');
  const port = Number(inside.port) || (inside.protocol === 'https:' ? 443 : 80);
  const route = routeGateways(gateways).find(
    ({ gateway }) => gateway.host.toLowerCase() === host && gateway.port === port,
  );
  if (route?.name === undefined || route.name === host) return url;
  inside.hostname = route.name;
  return inside.href.replace(/\/$/, '');
}

/** One string for an address or name with a port. */
export function endpointKey(host: string, port: number): string {
  return `${host} ${String(port)}`;
}
