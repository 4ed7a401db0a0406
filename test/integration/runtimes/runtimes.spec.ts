import { expect, test } from '@jest/globals';
import { RUNTIMES } from '../../../src/runtimes/registry.js';
import type { SandboxFile } from '../../../src/sandboxes/driver/sandbox-driver.js';
import {
  agentRuntimeContract,
  SERVERS,
  type RuntimeFixture,
} from '../../contracts/agent-runtime.contract.js';

const [pipes, wires, events] = SERVERS;
if (pipes?.type !== 'stdio' || wires?.type !== 'http' || events?.type !== 'sse') throw new Error();
const { command, args, env } = pipes;
const { url, headers } = wires;

type Servers = Record<string, Record<string, unknown>>;

/** The one JSON file with this name, and a member of it. */
const jsonMember = (name: string, member: string) => (files: readonly SandboxFile[]) => {
  const file = files.find(({ path }) => path.endsWith(name));
  return (JSON.parse(String(file?.content)) as Record<string, Servers>)[member] ?? {};
};

const FIXTURES: Readonly<Record<string, RuntimeFixture>> = {
  anthropic: {
    model: { asked: 'anthropic/claude-x', taken: 'claude-x' },
    refusedModels: [],
    readMcp: jsonMember('/.claude/mcp-servers.json', 'mcpServers'),
    mcp: {
      pipes: { type: 'stdio', command, args, env },
      wires: { type: 'http', url, headers },
      events: { type: 'sse', url: events.url, headers },
    },
    lines: {
      done: ['{"type":"result","subtype":"success","is_error":false,"result":"ok"}'],
      failed: [
        '{"type":"result","subtype":"success","is_error":true,"result":"API Error: 401"}',
        '{"type":"result","subtype":"error_during_execution","is_error":false}',
      ],
      neither: ['{"type":"assistant","message":{"content":[]}}', '{"type":"system"}'],
    },
  },
  openai: {
    model: { asked: 'gpt-x', taken: 'gpt-x' },
    refusedModels: [],
    readMcp: readToml,
    mcp: {
      pipes: { command, args, env },
      wires: { url, http_headers: headers },
      events: { url: events.url, http_headers: headers },
    },
    lines: {
      done: ['{"type":"turn.completed","usage":{}}'],
      failed: ['{"type":"turn.failed","error":{"message":"unexpected status 401"}}'],
      neither: ['{"type":"error","message":"Reconnecting... 1/3"}', '{"type":"turn.started"}'],
    },
  },
  google: {
    model: { asked: 'google/gemini-x', taken: 'gemini-x' },
    refusedModels: [],
    readMcp: jsonMember('/.gemini/settings.json', 'mcpServers'),
    mcp: {
      pipes: { command, args, env, trust: true },
      wires: { httpUrl: url, headers, trust: true },
      events: { url: events.url, headers, trust: true },
    },
    lines: {
      done: ['{"type":"result","status":"success","stats":{}}'],
      failed: ['{"type":"result","status":"error","error":{"type":"Error","message":"401"}}'],
      neither: ['{"type":"message","role":"assistant","content":"x"}'],
    },
  },
  opencode: {
    model: { asked: 'opencode/claude-x', taken: 'anthropic/claude-x' },
    refusedModels: ['llama-3', 'mistral/large', ''],
    readMcp: jsonMember('/opencode/opencode.json', 'mcp'),
    mcp: {
      pipes: { type: 'local', command: [command, ...args], environment: env },
      wires: { type: 'remote', url, headers, oauth: false },
      events: { type: 'remote', url: events.url, headers, oauth: false },
    },
    lines: {
      done: ['{"type":"step_finish","part":{"reason":"stop"}}', '{"type":"text","part":{}}'],
      failed: ['{"type":"error","error":{"name":"APIError","data":{"message":"401"}}}'],
      neither: ['{"type":"step_finish","part":{"reason":"tool-calls"}}', '{"type":"step_start"}'],
    },
  },
  shell: {
    model: { asked: 'shell/bash', taken: 'bash' },
    refusedModels: [],
    readMcp: jsonMember('/.mcp.json', 'mcpServers'),
    mcp: {
      pipes: { type: 'stdio', command, args, env },
      wires: { type: 'http', url, headers },
      events: { type: 'sse', url: events.url, headers },
    },
  },
};

test('every registered runtime is held to the contract', () => {
  expect(Object.keys(FIXTURES).sort()).toEqual(RUNTIMES.map(({ provider }) => provider).sort());
  const names = RUNTIMES.flatMap(({ provider, aliases }) => [provider, ...aliases]);
  expect(new Set(names).size).toBe(names.length);
});

for (const runtime of RUNTIMES) {
  const fixture = FIXTURES[runtime.provider];
  if (fixture) agentRuntimeContract(runtime, fixture);
}

/** As much TOML as a list of servers takes; its strings, lists and keys are JSON's here. */
function readToml(files: readonly SandboxFile[]): Servers {
  const text = String(files.find(({ path }) => path.endsWith('/.codex/config.toml'))?.content);
  const servers: Servers = {};
  for (const [, name = '', body = ''] of text.matchAll(
    /^\[mcp_servers\."(\w+)"\]\n((?:\w+ = .*\n?)*)/gm,
  )) {
    servers[name] = Object.fromEntries(
      [...body.matchAll(/^(\w+) = (.*)$/gm)].map(([, key = '', value = '']) => [
        key,
        JSON.parse(value.startsWith('{') ? value.replaceAll('" = "', '": "') : value),
      ]),
    );
  }
  return servers;
}
