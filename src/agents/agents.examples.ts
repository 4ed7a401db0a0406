/** Bodies to begin with, for the OpenAPI document. */
export const CREATE_AGENT_EXAMPLES = {
  'A bash script: needs no key': { name: 'Greeter', provider: 'shell', model: 'shell/bash' },
  'Claude Code with a tool server and a skill': {
    name: 'Release manager',
    provider: 'anthropic',
    model: 'claude-sonnet-4-5',
    system: 'You prepare releases. Never push to main.',
    mcp_servers: [
      {
        type: 'http',
        name: 'tickets',
        url: 'https://mcp.example.com/tickets',
        headers: { Authorization: 'Bearer secret' },
      },
      { type: 'stdio', name: 'clock', command: 'npx', args: ['-y', '@example/clock-mcp'] },
    ],
    skills: [{ name: 'release-notes', content: '# Release notes\n\nOne line per change.' }],
    metadata: { team: 'growth' },
  },
};

export const UPDATE_AGENT_EXAMPLES = {
  'Another prompt, one label changed and one deleted': {
    version: 1,
    system: 'Be brief.',
    metadata: { env: 'production', team: '' },
  },
};
