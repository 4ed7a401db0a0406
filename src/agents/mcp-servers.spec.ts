import { describe, expect, it } from '@jest/globals';
import type { McpServer } from '../runtimes/agent-runtime.js';
import { joinMcpServers, splitMcpServers } from './mcp-servers.js';

const servers: McpServer[] = [
  { type: 'stdio', name: 'files', command: 'mcp', args: ['-v'], env: { B: 'secret-b', A: 'x' } },
  { type: 'http', name: 'constructor', url: 'https://a.example', headers: { Key: 'secret-h' } },
  { type: 'sse', name: 'toString', url: 'https://b.example', headers: {} },
];

describe('tool servers', () => {
  it('are shown with the sorted names of their secrets and nothing of the values', () => {
    const { shown } = splitMcpServers(servers);
    expect(shown).toEqual([
      { type: 'stdio', name: 'files', command: 'mcp', args: ['-v'], env_keys: ['A', 'B'] },
      { type: 'http', name: 'constructor', url: 'https://a.example', header_keys: ['Key'] },
      { type: 'sse', name: 'toString', url: 'https://b.example', header_keys: [] },
    ]);
    expect(JSON.stringify(shown)).not.toContain('secret');
  });

  it('come back whole, also by way of JSON', () => {
    const split = JSON.parse(JSON.stringify(splitMcpServers(servers)));
    expect(joinMcpServers(split.shown, split.secrets)).toEqual(servers);
  });
});
