import type { SandboxFile, SandboxLayout } from '../sandboxes/driver/sandbox-driver.js';
import {
  GRANT_HEADER,
  type AgentRuntime,
  type McpServer,
  type Judgement,
  type RuntimeLaunch,
  type RuntimeTurn,
} from './agent-runtime.js';
import { CODEX } from './cli-pins.js';
import {
  parseEvent,
  reported,
  textAt,
  tokensIn,
  MODEL_APIS,
  onlyApi,
  defined,
  keyFile,
  plainPrompt,
  privateFile,
  withVersion,
} from './runtime-support.js';

const DEFAULT_URL = 'https://api.openai.com/v1';

/** OpenAI's Codex CLI. */
export class CodexRuntime implements AgentRuntime {
  readonly provider = 'openai';
  readonly aliases = ['codex'];
  readonly modelPrefixes = MODEL_APIS.openai.modelPrefixes;
  readonly programs = [CODEX];
  readonly reservedVariables = [
    'CODEX_ACCESS_TOKEN',
    'CODEX_API_KEY',
    'CODEX_HOME',
    'CODEX_SQLITE_HOME',
    'OPENAI_API_KEY',
    'OPENAI_BASE_URL',
  ];
  readonly resolveModel = onlyApi('openai');

  settingsFiles(turn: RuntimeTurn): SandboxFile[] {
    const { layout, access } = turn;
    return [
      keyFile(layout, defined({ OPENAI_API_KEY: access.apiKey })),
      privateFile(configPath(layout), config(turn, [])),
    ];
  }

  mcpFiles(turn: RuntimeTurn): SandboxFile[] {
    return [privateFile(configPath(turn.layout), config(turn, turn.mcpServers))];
  }

  skillsFolder({ home }: SandboxLayout): string {
    return `${home}/.codex/skills`;
  }

  launch({ turnNumber, model, prompt, access }: RuntimeTurn): RuntimeLaunch {
    return {
      command: [
        'codex',
        'exec',
        ...(turnNumber === 1 ? [] : ['resume', '--last']),
        '--json',
        '--skip-git-repo-check',
        '-m',
        model,
        // On the command line: the gateway may have moved since the settings were written.
        '-c',
        `model_providers.service.base_url=${toml(apiUrl(access.baseUrl))}`,
        '-',
      ],
      env: defined({ OPENAI_API_KEY: access.apiKey }),
      stdin: plainPrompt(prompt),
    };
  }

  judge(line: string): Judgement | undefined {
    const event = parseEvent(line);
    if (event?.['type'] === 'turn.completed') {
      // Cached tokens are among those of the input.
      const count = tokensIn(event['usage'], ['input_tokens', 'output_tokens']);
      return { verdict: 'done', ...reported(count, 'session') };
    }
    if (event?.['type'] !== 'turn.failed') return undefined;
    return { verdict: 'failed', reason: textAt(event, 'error', 'message') };
  }
}

function configPath({ home }: SandboxLayout): string {
  return `${home}/.codex/config.toml`;
}

/** Codex does not append the version itself. */
function apiUrl(baseUrl: string | undefined): string {
  return baseUrl === undefined ? DEFAULT_URL : withVersion(baseUrl, 'v1');
}

/** JSON's strings, arrays of strings and numbers are TOML's. */
const toml = (value: unknown): string => JSON.stringify(value).replaceAll('\u007f', '\\u007f');

const inlineTable = (entries: Readonly<Record<string, string>>): string =>
  `{ ${Object.entries(entries)
    .map(([name, value]) => `${toml(name)} = ${toml(value)}`)
    .join(', ')} }`;

function config({ access, layout }: RuntimeTurn, servers: readonly McpServer[]): string {
  return [
    'model_provider = "service"',
    // The sandbox around it is the service's; its own could not be made in there.
    'approval_policy = "never"',
    'sandbox_mode = "danger-full-access"',
    'check_for_update_on_startup = false',
    '[analytics]\nenabled = false',
    '[otel]\nmetrics_exporter = "none"',
    '[features]\nplugins = false\napps = false',
    `[projects.${toml(layout.workspace)}]\ntrust_level = "trusted"`,
    [
      '[model_providers.service]',
      'name = "OpenAI"',
      `base_url = ${toml(apiUrl(access.baseUrl))}`,
      'env_key = "OPENAI_API_KEY"',
      'wire_api = "responses"',
      'supports_websockets = false',
      'request_max_retries = 3',
      'stream_max_retries = 3',
    ].join('\n'),
    ...servers.map(describe),
    '',
  ].join('\n');
}

function describe(server: McpServer): string {
  const head = `[mcp_servers.${toml(server.name)}]`;
  const lines =
    server.type === 'stdio'
      ? [
          `command = ${toml(server.command)}`,
          `args = ${toml(server.args)}`,
          `env = ${inlineTable(server.env)}`,
        ]
      : [
          `url = ${toml(server.url)}`,
          `http_headers = ${inlineTable(server.headers)}`,
          ...(server.grantVariable === undefined
            ? []
            : [`env_http_headers = ${inlineTable({ [GRANT_HEADER]: server.grantVariable })}`]),
        ];
  return [head, ...lines].join('\n');
}
