import type { NetworkPolicy } from '../sandboxes/driver/sandbox-driver.js';
import { normalizeHostName } from '../common/host-pattern.js';
import type { PinnedEnvironment } from '../environments/environments.service.js';
import type { RuntimeTurn } from '../runtimes/agent-runtime.js';

/**
 * What a turn's sandbox may reach. A limited sandbox always reaches the session's repositories, in addition to what the
 * environment allows. It reaches the model's API only through the gateway.
 * @param packageHosts returns the hosts from which the package managers install; called only if these are allowed.
 */
export async function networkPolicyOf(
  plan: {
    environment: Pick<PinnedEnvironment, 'networking'> | undefined;
    repositories: readonly { url: string }[];
    runtimeTurn: Pick<RuntimeTurn, 'mcpServers'>;
  },
  packageHosts: () => Promise<readonly string[]>,
): Promise<NetworkPolicy> {
  const networking = plan.environment?.networking ?? { type: 'unrestricted' };
  if (networking.type === 'unrestricted') return { mode: 'unrestricted', allowedHosts: [] };
  const urls = [
    ...plan.repositories.map((repository) => repository.url),
    ...(networking.allow_mcp_servers
      ? plan.runtimeTurn.mcpServers.flatMap((server) =>
          server.type === 'stdio' || server.grantVariable !== undefined ? [] : [server.url],
        )
      : []),
  ];
  // Only the environment's own list contains patterns. The host of a URL is a single name, so `*.com` in a URL is no
  // pattern. An IP address is reachable only if it is one of the operator's gateways; otherwise git reports the failed
  // clone.
  const names = [
    ...urls.map((url) => new URL(url).hostname),
    ...(networking.allow_package_managers ? await packageHosts() : []),
  ].flatMap((host) => normalizeHostName(host) ?? []);
  return {
    mode: 'limited',
    allowedHosts: [...new Set([...networking.allowed_hosts, ...names])],
    gateways: urls.map(endpointOf),
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
