import { type Agent, api, body, type Schemas } from '../api/client.js';
import { forgetAgent } from '../lib/agents-store.js';
import { changedIn, jsonOf, type Kind, linesOf, listOf, pairsOf } from './kind.js';

const PROVIDERS = [
  ['anthropic', 'anthropic (Claude Code)'],
  ['openai', 'openai (Codex)'],
  ['google', 'google (Gemini CLI)'],
  ['opencode', 'opencode'],
  ['shell', 'shell (prompts are bash scripts)'],
] as const;

const MODELS: Readonly<Record<string, string>> = {
  anthropic: 'claude-sonnet-4-5',
  openai: 'gpt-5-codex',
  google: 'gemini-2.5-pro',
  opencode: 'opencode/…',
  shell: 'shell/bash',
};

const metadataText = ({ metadata }: Agent): string =>
  Object.entries(metadata)
    .map(([name, value]) => `${name}=${value}`)
    .join('\n');

/** Agents, as their pages show and change them. */
export const AGENTS: Kind<Agent> = {
  path: '/agents',
  plural: 'Agents',
  singular: 'agent',
  purpose: 'An agent is a template for sessions: a provider, a model and a system prompt.',
  list: (query, signal) =>
    body(api.GET('/agents', { ...(signal && { signal }), params: { query } })),
  read: (id, signal) =>
    body(api.GET('/agents/{id}', { ...(signal && { signal }), params: { path: { id } } })),
  versions: (id, limit, signal) =>
    body(api.GET('/agents/{id}/versions', { signal, params: { path: { id }, query: { limit } } })),
  create: (members) =>
    body(api.POST('/agents', { body: members as Schemas['CreateAgentRequest'] })),
  update: (id, members) => {
    forgetAgent(id);
    return body(
      api.PUT('/agents/{id}', {
        params: { path: { id } },
        body: members as Schemas['UpdateAgentRequest'],
      }),
    );
  },
  actions: [
    {
      label: 'Archive',
      title: 'Archive this agent?',
      text: 'It gets no new sessions and cannot be changed any more. Its sessions stay.',
      removes: false,
      refusal: ({ archived_at: at }) => (at === null ? undefined : 'The agent is archived'),
      run: (id) => body(api.POST('/agents/{id}/archive', { params: { path: { id } } })),
    },
  ],
  summary: ({ model }) => model,
  fields: ({ environments }) => [
    { name: 'name', label: 'Name', control: 'text', required: true },
    { name: 'provider', label: 'Provider', control: 'select', options: PROVIDERS },
    {
      name: 'model',
      label: 'Model',
      control: 'text',
      required: true,
      placeholder: ({ provider = '' }) => MODELS[provider] ?? '',
    },
    {
      name: 'environment_id',
      label: 'Default environment',
      control: 'select',
      options: [['', 'None'], ...environments.map(({ id, name }) => [id, name ?? id] as const)],
    },
    { name: 'system', label: 'System prompt', control: 'area', rows: 8 },
    {
      name: 'metadata',
      label: 'Labels',
      control: 'area',
      rows: 3,
      hint: 'One a line: NAME=value',
    },
    {
      name: 'mcp_servers',
      label: 'Tool servers',
      control: 'area',
      rows: 4,
      hint: 'A JSON list. A server that stays as it is keeps its secrets, which are not shown.',
    },
    { name: 'skills', label: 'Skills', control: 'area', rows: 4, hint: 'A JSON list' },
  ],
  textsOf: (agent) => ({
    name: agent?.name ?? '',
    provider:
      PROVIDERS.find(([id]) => id === agent?.provider)?.[0] ?? agent?.provider ?? 'anthropic',
    model: agent?.model ?? '',
    environment_id: agent?.environment_id ?? '',
    system: agent?.system ?? '',
    metadata: agent ? metadataText(agent) : '',
    mcp_servers: agent && agent.mcp_servers.length > 0 ? jsonOf(agent.mcp_servers) : '',
    skills: agent && agent.skills.length > 0 ? jsonOf(agent.skills) : '',
  }),
  bodyOf: (texts, before) => {
    const { metadata = '', mcp_servers: servers = '', skills = '' } = texts;
    const plain = ['name', 'provider', 'model', 'system'].filter((name) =>
      changedIn(texts, before, name),
    );
    return {
      ...Object.fromEntries(plain.map((name) => [name, texts[name]])),
      ...(changedIn(texts, before, 'environment_id') && {
        environment_id: texts['environment_id'] === '' ? null : texts['environment_id'],
      }),
      ...(changedIn(texts, before, 'metadata') && {
        // Labels are merged, and an empty text deletes one.
        metadata: {
          ...Object.fromEntries(
            linesOf(before?.['metadata']).map((line) => [line.slice(0, line.indexOf('=')), '']),
          ),
          ...pairsOf(metadata, 'Labels'),
        },
      }),
      ...(changedIn(texts, before, 'mcp_servers') && {
        mcp_servers: listOf(servers, 'Tool servers'),
      }),
      ...(changedIn(texts, before, 'skills') && { skills: listOf(skills, 'Skills') }),
    };
  },
  membersOf: (agent) => ({
    name: agent.name,
    provider: agent.provider,
    model: agent.model,
    'default environment': agent.environment_id ?? '',
    'system prompt': agent.system,
    labels: metadataText(agent),
    'tool servers': agent.mcp_servers.length > 0 ? jsonOf(agent.mcp_servers) : '',
    skills: agent.skills.length > 0 ? jsonOf(agent.skills) : '',
  }),
};
