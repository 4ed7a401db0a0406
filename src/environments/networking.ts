/** What a sandbox may reach. */
export type Networking =
  | { type: 'unrestricted' }
  | {
      type: 'limited';
      /** `api.example.com` or `*.example.org`; lower-case. */
      allowed_hosts: string[];
      allow_package_managers: boolean;
      allow_mcp_servers: boolean;
    };
