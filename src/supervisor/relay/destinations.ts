import {
  endpointKey,
  gatewayListeners,
  privateListeners,
  routeGateways,
  withoutCovered,
  type Gateway,
  type GatewayRoute,
} from './gateways.js';
import {
  hostMatches,
  normalizeHostName,
  parseHostPattern,
  patternsOverlap,
  type HostPattern,
} from '../../common/host-pattern.js';
import { listingOf, type PrivateHost } from '../../common/egress-network.js';
import { COMMON_LISTENERS, SERVED_PORTS, type ListenerSpec } from './listener-plan.js';
import { SyntheticAddresses } from './binding.js';
import type { Target } from '../../gateway/egress/connections.js';
import type { NetworkPolicy } from '../calls.js';
import type { NameVerdict } from './dns-responder.js';

/** The destination of a connection. */
export interface Destination extends Target {
  /** The name that the client must claim (SNI, Host), if the policy requires that. */
  claimedName?: string;
}

export type DestinationVerdict =
  { destination: Destination } | { refused: { name: string; why: string } };

/** Applies the policy, and maps synthetic addresses to names. */
export class Destinations {
  private readonly patterns: readonly HostPattern[] | undefined;
  private readonly routes: readonly GatewayRoute[];
  private readonly gatewayNames = new Set<string>();
  /** Gateways by name and port, and by loopback literal and port. */
  private readonly gatewayByEndpoint = new Map<string, GatewayRoute>();
  private readonly addresses = new SyntheticAddresses();
  /** Listed names that the policy may allow. */
  private readonly privateHosts: readonly PrivateHost[];

  /**
   * @param privateHosts names that the gateway connects to at further ports
   * @throws HostPatternError, RangeError for invalid hosts, because a policy must not be applied partially
   */
  constructor(
    policy: NetworkPolicy,
    gateways: readonly Gateway[],
    privateHosts: readonly PrivateHost[] = [],
  ) {
    this.patterns =
      policy.mode === 'limited' ? policy.allowedHosts.map(parseHostPattern) : undefined;
    const { patterns } = this;
    this.privateHosts = privateHosts.filter(
      ({ host }) => patterns?.some((pattern) => patternsOverlap(pattern, host)) ?? true,
    );
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
    for (const { host } of this.privateHosts)
      if (host.kind === 'exact') this.addresses.pin(host.name);
  }

  listeners(): ListenerSpec[] {
    const addressOf = (name: string): string => this.addresses.addressOf(name);
    const extra = [
      ...gatewayListeners(this.routes, addressOf),
      ...privateListeners(this.privateHosts, addressOf),
    ];
    return [...COMMON_LISTENERS, ...withoutCovered(extra)];
  }

  /** The DNS answer for a name. */
  judgeName(text: string): Extract<NameVerdict, { address: string } | { refused: string }> {
    const name = normalizeHostName(text);
    if (name === undefined) return { refused: 'not a host name' };
    if (!this.allows(name) && !this.gatewayNames.has(name)) return { refused: 'not allowed' };
    return { address: this.addresses.addressOf(name) };
  }

  /**
   * The name to look up before answering DNS, for a policy without a list. With a list, no names are looked up:
   * patterns allow arbitrary names, and looking them up could leak data.
   */
  nameToLookUp(text: string): string | undefined {
    const name = normalizeHostName(text);
    if (name === undefined || this.patterns !== undefined || this.gatewayNames.has(name)) {
      return undefined;
    }
    return this.allows(name) ? name : undefined;
  }

  /** Decides whether to allow a connection to an address in the sandbox's network. */
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
    const isServed =
      SERVED_PORTS.includes(port) || listingOf(this.privateHosts, name, port) !== undefined;
    if (!this.allows(name) || !isServed) return { refused: { name, why: 'not allowed' } };
    return { destination: { host: name, port, isGateway: false, ...claim } };
  }

  private allows(name: string): boolean {
    if (this.patterns !== undefined) return hostMatches(this.patterns, name);
    // Without a list, refuses names with one label, because the resolver's search list would turn them into names of
    // the host's own network.
    return name.includes('.') || this.privateHosts.some(({ host }) => host.name === name);
  }
}

function permits({ mode, gateways }: NetworkPolicy, { host, port }: Gateway): boolean {
  return mode !== 'limited' || gateways === undefined || gateways.includes(`${host}:${port}`);
}

function toGateway({ gateway }: GatewayRoute): Destination {
  return { host: gateway.host, port: gateway.port, isGateway: true };
}
