/**
 * What each sealed column is sealed for: the column and the row's key. A sealed text that is copied to another place
 * does not open there.
 */
export const secretContext = {
  environment: (id: string) => `environments.env_vars:${id}`,
  environmentVersion: (id: string, version: number) =>
    `environment_versions.env_vars:${id}:${version}`,
  agent: (id: string) => `agents.mcp_secrets:${id}`,
  agentVersion: (id: string, version: number) => `agent_versions.mcp_secrets:${id}:${version}`,
  session: (id: string) => `sessions.secrets:${id}`,
};
