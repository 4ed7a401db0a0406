import { describe, expect, it } from '@jest/globals';
import type { Networking } from '../environments/dto/networking.dto.js';
import type { McpServer } from '../runtimes/agent-runtime.js';
import { networkPolicyOf } from './network-policy.js';
import type { TurnPlan } from './turn-plan.js';

const LIMITED: Networking = {
  type: 'limited',
  allowed_hosts: ['*.example.org'],
  allow_package_managers: true,
  allow_mcp_servers: true,
};

function planOf(options: { repositories?: string[]; servers?: string[] }): TurnPlan {
  const mcpServers = (options.servers ?? []).map((url, index): McpServer => ({
    type: 'http',
    name: `s${index}`,
    url,
    headers: {},
  }));
  return {
    environment: { networking: LIMITED },
    repositories: (options.repositories ?? []).map((url) => ({ url })),
    runtimeTurn: { mcpServers },
  } as unknown as TurnPlan;
}

const allowed = async (plan: TurnPlan) =>
  (await networkPolicyOf(plan, async () => ['pypi.example', '10.0.0.7'])).allowedHosts;

describe('a limited network', () => {
  it('reaches the patterns of the environment and the exact hosts of addresses', async () => {
    const plan = planOf({
      repositories: ['https://Git.Example:8443/a.git', 'http://10.0.0.9/a.git'],
      servers: ['https://b\u00fccher.example/mcp'],
    });
    expect(await allowed(plan)).toEqual([
      '*.example.org',
      'git.example',
      'xn--bcher-kva.example',
      'pypi.example',
    ]);
  });

  it('takes no pattern from an address', async () => {
    const plan = planOf({
      repositories: ['https://*.com/x.git', 'https://*/x.git'],
      servers: ['https://*.net/mcp'],
    });
    expect(await allowed(plan)).toEqual(['*.example.org', 'pypi.example']);
  });
});
