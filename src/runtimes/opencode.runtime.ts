import type { SandboxFile, SandboxLayout } from '../sandboxes/driver/sandbox-driver.js';
import type {
  AgentRuntime,
  McpServer,
  ModelApi,
  Judgement,
  ResolvedModel,
  RuntimeLaunch,
  RuntimeTurn,
} from './agent-runtime.js';
import { OPENCODE, RIPGREP } from './cli-pins.js';
import {
  parseEvent,
  reported,
  textAt,
  tokensIn,
  MODEL_APIS,
  withVersion,
  headersOf,
  keyFile,
  plainPrompt,
  privateJson,
} from './runtime-support.js';

const APIS = Object.keys(MODEL_APIS) as ModelApi[];
/** Where OpenCode's own client of each API expects the key, and which version its addresses end with. */
const CLIENTS: Readonly<Record<ModelApi, { keyVariable: string; version: string }>> = {
  anthropic: { keyVariable: 'ANTHROPIC_API_KEY', version: 'v1' },
  openai: { keyVariable: 'OPENAI_API_KEY', version: 'v1' },
  google: { keyVariable: 'GOOGLE_GENERATIVE_AI_API_KEY', version: 'v1beta' },
};

/**
 * OpenCode. Its models are `<api>/<model>`, and the API decides about the key. After the provider's own prefix the API
 * may be left out where the model's name tells it: `opencode/claude-…` is `anthropic/claude-…`.
 */
export class OpenCodeRuntime implements AgentRuntime {
  readonly provider = 'opencode';
  readonly aliases = [];
  readonly modelPrefixes = APIS.map((api) => `${api}/`);
  readonly programs = [OPENCODE, RIPGREP];
  readonly reservedVariables = [
    'ANTHROPIC_API_KEY',
    'ANTHROPIC_AUTH_TOKEN',
    'ANTHROPIC_BASE_URL',
    'GOOGLE_GENERATIVE_AI_API_KEY',
    'OPENAI_API_KEY',
    'OPENAI_BASE_URL',
    'OPENCODE_API_KEY',
    'OPENCODE_AUTH_CONTENT',
    'OPENCODE_CONFIG',
    'OPENCODE_CONFIG_CONTENT',
    'OPENCODE_CONFIG_DIR',
    'OPENCODE_DB',
    'OPENCODE_MODELS_PATH',
    'OPENCODE_MODELS_URL',
    'OPENCODE_TEST_HOME',
    'OPENCODE_TEST_MANAGED_CONFIG_DIR',
    'XDG_CONFIG_HOME',
    'XDG_DATA_HOME',
    'XDG_STATE_HOME',
  ];

  resolveModel(model: string): ResolvedModel | undefined {
    for (const api of APIS) {
      if (model.startsWith(`${api}/`)) return { model, api };
    }
    const api = APIS.find((name) =>
      MODEL_APIS[name].modelPrefixes.some((prefix) => model.startsWith(prefix)),
    );
    return api === undefined ? undefined : { model: `${api}/${model}`, api };
  }

  settingsFiles(turn: RuntimeTurn): SandboxFile[] {
    return [keyFile(turn.layout, keyOf(turn))];
  }

  mcpFiles({ layout, mcpServers }: RuntimeTurn): SandboxFile[] {
    const mcp = Object.fromEntries(mcpServers.map((server) => [server.name, describe(server)]));
    return [privateJson(`${layout.home}/.config/opencode/opencode.json`, { mcp })];
  }

  skillsFolder({ home }: SandboxLayout): string {
    return `${home}/.config/opencode/skills`;
  }

  launch(turn: RuntimeTurn): RuntimeLaunch {
    const { turnNumber, model, prompt } = turn;
    return {
      command: [
        ...(['opencode', 'run', '--format', 'json', '-m', model] as const),
        ...(turnNumber === 1 ? [] : ['-c']),
      ],
      env: {
        ...keyOf(turn),
        OPENCODE_CONFIG_CONTENT: JSON.stringify(config(turn)),
        OPENCODE_DISABLE_AUTOUPDATE: '1',
        OPENCODE_DISABLE_MODELS_FETCH: '1',
        OPENCODE_DISABLE_LSP_DOWNLOAD: '1',
      },
      stdin: plainPrompt(prompt),
    };
  }

  judge(line: string): Judgement | undefined {
    const event = parseEvent(line);
    switch (event?.['type']) {
      case 'error':
        return {
          verdict: 'failed',
          reason: textAt(event, 'error', 'data', 'message') ?? textAt(event, 'error', 'name'),
        };
      case 'text':
        return { verdict: 'done' };
      case 'step_finish':
        return {
          // After calls of tools the model is asked again.
          ...(textAt(event, 'part', 'reason') === 'tool-calls' ? {} : { verdict: 'done' as const }),
          ...reported(tokensOfStep(event['part']), 'step'),
        };
      default:
        return undefined;
    }
  }
}

function tokensOfStep(part: unknown): number | undefined {
  const { tokens } = (part ?? {}) as { tokens?: { cache?: unknown } };
  const direct = tokensIn(tokens, ['input', 'output', 'reasoning']);
  return direct === undefined
    ? undefined
    : direct + (tokensIn(tokens?.cache, ['read', 'write']) ?? 0);
}

function keyOf({ model, access }: RuntimeTurn): Record<string, string> {
  return access.apiKey === undefined ? {} : { [CLIENTS[apiOf(model)].keyVariable]: access.apiKey };
}

function apiOf(model: string): ModelApi {
  return APIS.find((api) => model.startsWith(`${api}/`)) ?? 'anthropic';
}

function config({ model, access }: RuntimeTurn): Record<string, unknown> {
  const api = apiOf(model);
  const url =
    access.baseUrl === undefined
      ? {}
      : { baseURL: withVersion(access.baseUrl, CLIENTS[api].version) };
  return {
    permission: 'allow',
    share: 'disabled',
    autoupdate: false,
    provider: {
      // Named, so that a model which is newer than the program's own list is not refused.
      [api]: { options: url, models: { [model.slice(api.length + 1)]: {} } },
    },
  };
}

function describe(server: McpServer): Record<string, unknown> {
  if (server.type === 'stdio') {
    const { command, args, env } = server;
    return { type: 'local', command: [command, ...args], environment: env };
  }
  const headers = headersOf(server, (name) => `{env:${name}}`);
  return { type: 'remote', url: server.url, headers, oauth: false };
}
