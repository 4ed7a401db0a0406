import { isIP } from 'node:net';
import type { NetworkPolicy } from '../sandboxes/sandbox-driver.js';
import type { TurnPlan } from './turn-plan.js';

/**
 * What a turn's sandbox may reach. A limited one always reaches the runtime's own model API, or the gateway in its
 * place, and the session's repositories, besides what the environment allows.
 * @param packageHosts from where this sandbox's package managers install; only asked for when they are allowed.
 */
export async function networkPolicyOf(
  plan: TurnPlan,
  packageHosts: () => Promise<readonly string[]>,
): Promise<NetworkPolicy> {
  const networking = plan.environment?.networking ?? { type: 'unrestricted' };
  if (networking.type === 'unrestricted') return { mode: 'unrestricted', allowedHosts: [] };
  const urls = [
    ...plan.repositories.map((repository) => repository.url),
    ...(networking.allow_mcp_servers
      ? plan.runtimeTurn.mcpServers.flatMap((server) =>
          server.type === 'stdio' ? [] : [server.url],
        )
      : []),
  ];
  const hosts = [
    ...(networking.allowed_hosts ?? []),
    ...plan.apiHosts,
    ...urls.map((url) => new URL(url).hostname),
    ...(networking.allow_package_managers ? await packageHosts() : []),
  ];
  // A sandbox reaches names. An address is one of the operator's gateways or out of reach: a clone from it fails in
  // git's own words.
  const names = hosts.filter((host) => isIP(bare(host)) === 0);
  return {
    mode: 'limited',
    allowedHosts: [...new Set(names.map((host) => host.toLowerCase()))],
    gateways: [...urls, ...(plan.gateway === undefined ? [] : [plan.gateway])].map(endpointOf),
  };
}

/** `host:port` of a URL. */
function endpointOf(url: string): string {
  const { hostname, port, protocol } = new URL(url);
  return `${bare(hostname)}:${port || (protocol === 'https:' ? '443' : '80')}`;
}

/** An IPv6 address without its brackets. */
function bare(host: string): string {
  return host.replace(/^\[|\]$/g, '');
}
