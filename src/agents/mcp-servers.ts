import type { McpServer } from '../runtimes/agent-runtime.js';

/** A tool server without the values of its secrets: what is stored in the clear and shown to clients. */
export type ShownMcpServer =
  | { type: 'stdio'; name: string; command: string; args: string[]; env_keys: string[] }
  | { type: 'http' | 'sse'; name: string; url: string; header_keys: string[] };

/** The name of a tool server → its environment variables or headers. */
export type McpSecrets = Record<string, Record<string, string>>;

/** Separates the values that must be encrypted from the rest. */
export function splitMcpServers(servers: readonly McpServer[]): {
  shown: ShownMcpServer[];
  secrets: McpSecrets;
} {
  const secrets = servers.map((server): [string, Record<string, string>] => [
    server.name,
    server.type === 'stdio' ? server.env : server.headers,
  ]);
  return {
    shown: servers.map(show),
    secrets: Object.fromEntries(secrets.filter(([, values]) => Object.keys(values).length > 0)),
  };
}

/** The inverse of {@link splitMcpServers}. */
export function joinMcpServers(
  shown: readonly ShownMcpServer[],
  secrets: Readonly<McpSecrets>,
): McpServer[] {
  return shown.map((server) => {
    const values = Object.hasOwn(secrets, server.name) ? (secrets[server.name] ?? {}) : {};
    if (server.type === 'stdio') {
      const { type, name, command, args } = server;
      return { type, name, command, args, env: values };
    }
    const { type, name, url } = server;
    return { type, name, url, headers: values };
  });
}

function show(server: McpServer): ShownMcpServer {
  if (server.type === 'stdio') {
    const { type, name, command, args } = server;
    return { type, name, command, args, env_keys: Object.keys(server.env).sort() };
  }
  const { type, name, url } = server;
  return { type, name, url, header_keys: Object.keys(server.headers).sort() };
}
