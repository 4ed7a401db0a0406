import type { NetworkPolicy } from '../sandbox-driver.js';

/** A rule of the vendor's network policy. */
export interface NetworkRule {
  domain: string;
  action: 'allow' | 'deny';
}

/**
 * The vendor's rules for a network policy. There is always one: to the vendor, no rules mean an open network.
 * @param gateway the host name of the gateway, which is always allowed
 */
export function networkRules(policy: NetworkPolicy, gateway: string | undefined): NetworkRule[] {
  if (policy.mode === 'unrestricted') return [{ domain: '*', action: 'allow' }];
  const allowed = [...policy.allowedHosts, ...(gateway === undefined ? [] : [gateway])];
  return [
    ...[...new Set(allowed)].map((domain): NetworkRule => ({ domain, action: 'allow' })),
    { domain: '*', action: 'deny' },
  ];
}
