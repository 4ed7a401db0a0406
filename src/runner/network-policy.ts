import { isIP } from 'node:net';
import type { NetworkPolicy } from '../sandboxes/sandbox-driver.js';
import type { TurnPlan } from './turn-plan.js';

/**
 * What a turn's sandbox may reach. A limited one always reaches the runtime's own model API and the session's
 * repositories, besides what the environment allows.
 * @param packageHosts from where this sandbox's package managers install; only asked for when they are allowed.
 */
export async function networkPolicyOf(
  plan: TurnPlan,
  packageHosts: () => Promise<readonly string[]>,
): Promise<NetworkPolicy> {
  const networking = plan.environment?.networking ?? { type: 'unrestricted' };
  if (networking.type === 'unrestricted') return { mode: 'unrestricted', allowedHosts: [] };
  const hosts = [
    ...(networking.allowed_hosts ?? []),
    ...plan.apiHosts,
    ...plan.repositories.map((repository) => hostOf(repository.url)),
    ...(networking.allow_mcp_servers
      ? plan.runtimeTurn.mcpServers.flatMap((server) =>
          server.type === 'stdio' ? [] : [hostOf(server.url)],
        )
      : []),
    ...(networking.allow_package_managers ? await packageHosts() : []),
  ];
  // A sandbox reaches names. An address is the operator's gateway, which needs no permission, or out of reach: a clone
  // from it fails in git's own words.
  const names = hosts.filter((host) => isIP(host.replace(/^\[|\]$/g, '')) === 0);
  return { mode: 'limited', allowedHosts: [...new Set(names.map((host) => host.toLowerCase()))] };
}

function hostOf(url: string): string {
  return new URL(url).hostname;
}
