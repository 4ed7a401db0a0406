import type { SandboxFile, SandboxLayout } from '../sandboxes/sandbox-driver.js';
import type {
  AgentRuntime,
  McpServer,
  Outcome,
  RuntimeLaunch,
  RuntimeTurn,
} from './agent-runtime.js';
import { GEMINI_CLI } from './cli-pins.js';
import { parseEvent, textAt } from './json-event.js';
import { MODEL_APIS, onlyApi, withoutVersion } from './model-api.js';
import { defined, keyFile, plainPrompt, privateJson } from './settings.js';

/** Google's Gemini CLI. */
export class GeminiRuntime implements AgentRuntime {
  readonly provider = 'google';
  readonly aliases = ['gemini'];
  readonly modelPrefixes = MODEL_APIS.google.modelPrefixes;
  readonly programs = [GEMINI_CLI];
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

  judge(line: string): Outcome | undefined {
    const event = parseEvent(line);
    if (event?.['type'] !== 'result') return undefined;
    if (event['status'] === 'success') return { verdict: 'done' };
    return { verdict: 'failed', reason: textAt(event, 'error', 'message') };
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
  const { url, headers } = server;
  return { [server.type === 'http' ? 'httpUrl' : 'url']: url, headers, trust: true };
}
