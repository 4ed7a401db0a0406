import type { SandboxFile, SandboxLayout } from '../sandboxes/driver/sandbox-driver.js';
import type {
  AgentRuntime,
  McpServer,
  Judgement,
  RuntimeLaunch,
  RuntimeTurn,
} from './agent-runtime.js';
import { GEMINI_CLI } from './cli-pins.js';
import {
  parseEvent,
  reported,
  textAt,
  tokensIn,
  MODEL_APIS,
  onlyApi,
  withoutVersion,
  defined,
  headersOf,
  keyFile,
  plainPrompt,
  privateJson,
} from './runtime-support.js';

/** Google's Gemini CLI. */
export class GeminiRuntime implements AgentRuntime {
  readonly provider = 'google';
  readonly aliases = ['gemini'];
  readonly modelPrefixes = MODEL_APIS.google.modelPrefixes;
  readonly programs = [GEMINI_CLI];
  readonly reservedVariables = [
    'GEMINI_API_KEY',
    'GEMINI_CLI_HOME',
    'GEMINI_CLI_SYSTEM_DEFAULTS_PATH',
    'GEMINI_CLI_SYSTEM_SETTINGS_PATH',
    'GOOGLE_API_KEY',
    'GOOGLE_GEMINI_BASE_URL',
    'GOOGLE_VERTEX_BASE_URL',
  ];
  readonly resolveModel = onlyApi('google');

  settingsFiles({ layout, access }: RuntimeTurn): SandboxFile[] {
    return [
      keyFile(layout, defined({ GEMINI_API_KEY: access.apiKey })),
      privateJson(settingsPath(layout), settings([])),
    ];
  }

  mcpFiles({ layout, mcpServers }: RuntimeTurn): SandboxFile[] {
    return [privateJson(settingsPath(layout), settings(mcpServers))];
  }

  skillsFolder({ home }: SandboxLayout): string {
    return `${home}/.gemini/skills`;
  }

  launch({ turnNumber, sessionId, model, prompt, access }: RuntimeTurn): RuntimeLaunch {
    return {
      command: [
        'gemini',
        '-y',
        '-m',
        model,
        '-o',
        'stream-json',
        turnNumber === 1 ? '--session-id' : '-r',
        sessionId,
        // Not interactive; the prompt itself comes by stdin.
        '-p',
        '',
      ],
      env: defined({
        GEMINI_API_KEY: access.apiKey,
        GOOGLE_GEMINI_BASE_URL:
          access.baseUrl === undefined ? undefined : withoutVersion(access.baseUrl),
        GEMINI_CLI_TRUST_WORKSPACE: 'true',
        // One process instead of two.
        GEMINI_CLI_NO_RELAUNCH: 'true',
      }),
      stdin: plainPrompt(prompt),
    };
  }

  judge(line: string): Judgement | undefined {
    const event = parseEvent(line);
    if (event?.['type'] !== 'result') return undefined;
    const used = reported(tokensIn(event['stats'], ['total_tokens']), 'turn');
    if (event['status'] === 'success') return { verdict: 'done', ...used };
    return { verdict: 'failed', reason: textAt(event, 'error', 'message'), ...used };
  }
}

function settingsPath({ home }: SandboxLayout): string {
  return `${home}/.gemini/settings.json`;
}

function settings(servers: readonly McpServer[]): Record<string, unknown> {
  return {
    security: {
      auth: { selectedType: 'gemini-api-key' },
      // A folder that it does not trust takes its permissions away.
      folderTrust: { enabled: false },
    },
    privacy: { usageStatisticsEnabled: false },
    telemetry: { enabled: false },
    general: { enableAutoUpdate: false, enableAutoUpdateNotification: false, maxAttempts: 3 },
    mcpServers: Object.fromEntries(servers.map((server) => [server.name, describe(server)])),
  };
}

function describe(server: McpServer): Record<string, unknown> {
  if (server.type === 'stdio') {
    const { command, args, env } = server;
    return { command, args, env, trust: true };
  }
  const headers = headersOf(server, (name) => `\${${name}}`);
  return { [server.type === 'http' ? 'httpUrl' : 'url']: server.url, headers, trust: true };
}
