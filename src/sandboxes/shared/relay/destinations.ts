import { endpointKey, gatewayListeners, routeGateways } from './gateways.js';
import { hostMatches, normalizeHostName, parseHostPattern } from '../../../common/host-pattern.js';
import { COMMON_LISTENERS } from './listener-plan.js';
import { SyntheticAddresses } from './synthetic-addresses.js';
import type { NetworkPolicy } from '../../sandbox-driver.js';
import type { NameVerdict } from './dns-responder.js';
import type { Gateway, GatewayRoute } from './gateways.js';
import type { HostPattern } from '../../../common/host-pattern.js';
import type { ListenerSpec } from './listener-plan.js';

/** Where a connection may go. */
export interface Destination {
  /** Name or address to resolve and dial, on the host side. */
  host: string;
  port: number;
  /** Is it a gateway of the operator's, so that its address may be private? */
  isGateway: boolean;
  /** The name that the client must say it means (SNI, Host), if the policy wants that checked. */
  claimedName?: string;
}

export type DestinationVerdict =
  { destination: Destination } | { refused: { name: string; why: string } };

/** Knows what the policy allows, and which synthetic address stands for which name. */
export class Destinations {
  private readonly patterns: readonly HostPattern[] | undefined;
  private readonly routes: readonly GatewayRoute[];
  private readonly gatewayNames = new Set<string>();
  /** By name and port, and by loopback literal and port. */
  private readonly gatewayByEndpoint = new Map<string, GatewayRoute>();
  private readonly addresses = new SyntheticAddresses();

  /** @throws HostPatternError, RangeError for hosts that are none: a policy is never applied in part */
  constructor(policy: NetworkPolicy, gateways: readonly Gateway[]) {
    this.patterns =
      policy.mode === 'limited' ? policy.allowedHosts.map(parseHostPattern) : undefined;
    this.routes = routeGateways(gateways).filter(({ gateway }) => permits(policy, gateway));
    for (const route of this.routes) {
      if (route.name !== undefined) {
        this.gatewayNames.add(route.name);
        this.addresses.pin(route.name);
      }
      for (const host of route.name === undefined ? route.literals : [route.name]) {
        this.gatewayByEndpoint.set(endpointKey(host, route.gateway.port), route);
      }
    }
  }

  listeners(): ListenerSpec[] {
    const extra = gatewayListeners(this.routes, (name) => this.addresses.addressOf(name));
    return [...COMMON_LISTENERS, ...extra];
  }

  /** What DNS says about a name. */
  judgeName(text: string): NameVerdict {
    const name = normalizeHostName(text);
    if (name === undefined) return { refused: 'not a host name' };
    if (!this.allows(name) && !this.gatewayNames.has(name)) return { refused: 'not allowed' };
    return { address: this.addresses.addressOf(name) };
  }

  /** What a connection to an address inside of the sandbox's network may become. */
  judgeConnection(address: string, port: number): DestinationVerdict {
    const literal = this.gatewayByEndpoint.get(endpointKey(address, port));
    if (literal) return { destination: toGateway(literal) };

    const name = this.addresses.nameOf(address);
    if (name === undefined) return { refused: { name: address, why: 'an address without a name' } };
    const claim = this.patterns === undefined ? {} : { claimedName: name };
    const gateway = this.gatewayByEndpoint.get(endpointKey(name, port));
    if (gateway) {
      const named = normalizeHostName(gateway.gateway.host) === name;
      return { destination: { ...toGateway(gateway), ...(named ? claim : {}) } };
    }
    if (!this.allows(name)) return { refused: { name, why: 'not allowed' } };
    return { destination: { host: name, port, isGateway: false, ...claim } };
  }

  private allows(name: string): boolean {
    // A name of one label is the host's own or its network's, by way of the resolver's search list.
    return this.patterns === undefined ? name.includes('.') : hostMatches(this.patterns, name);
  }
}

function permits({ mode, gateways }: NetworkPolicy, { host, port }: Gateway): boolean {
  return mode !== 'limited' || gateways === undefined || gateways.includes(`${host}:${port}`);
}

function toGateway({ gateway }: GatewayRoute): Destination {
  return { host: gateway.host, port: gateway.port, isGateway: true };
}
