import { quote } from '../common/shell-quote.js';
import { jsonExcess, storableInteger } from '../common/storable.js';
import {
  GRANT_HEADER,
  type McpServer,
  type ModelApi,
  type ReportedTokens,
  type ResolvedModel,
  type GitSkill,
  type InlineSkill,
} from './agent-runtime.js';
import type { SandboxFile, SandboxLayout } from '../sandboxes/driver/sandbox-driver.js';
import { posix } from 'node:path';

/** An event of a program's JSON output, with unknown members. */
export type JsonEvent = Readonly<Record<string, unknown>>;

/** Events with a turn's outcome are small. Larger ones are not needed. */
const LIMITS = { depth: 64, values: 10_000 };

/**
 * @returns `undefined` for a line that is not a JSON object, because programs also print plain text, and for JSON that
 *   would take the parser seconds
 */
export function parseEvent(line: string): JsonEvent | undefined {
  if (!line.startsWith('{') || jsonExcess(Buffer.from(line), LIMITS) !== undefined)
    return undefined;
  try {
    return JSON.parse(line) as JsonEvent;
  } catch {
    return undefined;
  }
}

/** The text at a path of keys; `undefined` if there is none. */
export function textAt(event: JsonEvent, ...path: string[]): string | undefined {
  let value: unknown = event;
  for (const key of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = (value as JsonEvent)[key];
  }
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** More tokens than this are nonsense. */
const MAX_TOKENS = 10 ** 10;

/**
 * Adds up the counts of tokens in a program's report.
 * @param report an object with counts. @param names its members that count
 * @returns `undefined` if it has none of them
 */
export function tokensIn(report: unknown, names: readonly string[]): number | undefined {
  if (typeof report !== 'object' || report === null) return undefined;
  const counts = names.flatMap(
    (name) => storableInteger((report as JsonEvent)[name], { max: MAX_TOKENS }) ?? [],
  );
  return counts.length === 0 ? undefined : counts.reduce((sum, count) => sum + count, 0);
}

/** @param count `undefined` if nothing was reported */
export function reported(
  count: number | undefined,
  of: ReportedTokens['of'],
): { tokens?: ReportedTokens } {
  return count === undefined ? {} : { tokens: { count, of } };
}

/** For each model API: its address, the prefix of its models, and the variable in which programs expect its key. */
export const MODEL_APIS: Readonly<
  Record<ModelApi, { host: string; modelPrefixes: readonly string[]; keyVariable: string }>
> = {
  anthropic: {
    host: 'api.anthropic.com',
    modelPrefixes: ['claude-'],
    keyVariable: 'ANTHROPIC_API_KEY',
  },
  openai: {
    host: 'api.openai.com',
    modelPrefixes: ['gpt-', 'o1', 'o3', 'o4', 'codex-'],
    keyVariable: 'OPENAI_API_KEY',
  },
  google: {
    host: 'generativelanguage.googleapis.com',
    modelPrefixes: ['gemini-'],
    keyVariable: 'GEMINI_API_KEY',
  },
};

/**
 * The address of a model API for the gateway, without a version.
 * @param baseUrl the operator's address in place of the provider's own
 */
export function upstreamUrl(api: ModelApi, baseUrl: string | undefined): string {
  if (baseUrl === undefined) return `https://${MODEL_APIS[api].host}`;
  // By convention, addresses of OpenAI's API include the version, and any other path is the API's own.
  return api === 'openai' ? baseUrl : withoutVersion(baseUrl);
}

/** For a runtime that supports only one API: it uses every model name as given. */
export function onlyApi(api: ModelApi): (model: string) => ResolvedModel {
  return (model) => ({ model, api });
}

/** Appends the API's version to a base URL, for agent programs that do not append it themselves. */
export function withVersion(url: string, version: string): string {
  return /\/v\d+(beta)?$/.test(url) ? url : `${url}/${version}`;
}

/** Removes the API's version from an address. */
export function withoutVersion(url: string): string {
  return url.replace(/\/v\d+(beta)?$/, '');
}

/** A file that only the agent's user can read, because it may hold keys. */
export function privateFile(path: string, content: string): SandboxFile {
  return { path, content, mode: 0o600 };
}

/** A private file with JSON. */
export function privateJson(path: string, content: unknown): SandboxFile {
  return privateFile(path, `${JSON.stringify(content, null, 2)}\n`);
}

/** Formats variables as a file that a shell can source. */
export function keyFile(
  layout: SandboxLayout,
  variables: Readonly<Record<string, string>>,
): SandboxFile {
  const lines = Object.entries(variables).map(
    ([name, value]) => `export ${name}=${quote(value)}\n`,
  );
  return privateFile(`${layout.home}/.session/runtime-env`, lines.join(''));
}

/**
 * The headers of a remote tool server for a program's configuration.
 * @param reference how the program refers to an environment variable there
 */
export function headersOf(
  { headers, grantVariable }: Extract<McpServer, { url: string }>,
  reference: (variable: string) => string,
): Record<string, string> {
  return grantVariable === undefined
    ? headers
    : { ...headers, [GRANT_HEADER]: reference(grantVariable) };
}

/** The tool servers in the format of `.mcp.json`, in which `${NAME}` refers to an environment variable. */
export function mcpJson(servers: readonly McpServer[]): Record<string, unknown> {
  const described = servers.map((server) => {
    if (server.type === 'stdio') {
      const { name, ...settings } = server;
      return [name, settings];
    }
    const { name, type, url } = server;
    return [name, { type, url, headers: headersOf(server, (variable) => `\${${variable}}`) }];
  });
  return { mcpServers: Object.fromEntries(described) };
}

/** Removes undefined members. */
export function defined(
  variables: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(variables).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, value]],
    ),
  );
}

/** Makes sure that no program takes a prompt for one of its own commands, which begin with a slash. */
export function plainPrompt(prompt: string): string {
  return prompt.startsWith('/') ? ` ${prompt}` : prompt;
}

/** The members of a skill that determine its folder. */
type NamedSkill = Pick<InlineSkill, 'name'> | Pick<GitSkill, 'url' | 'path'>;

/** The folder of a skill below the one where the agent program looks for skills. */
export function skillFolder(skill: NamedSkill): string {
  if ('name' in skill) return folderName(skill.name);
  const path = posix.join('/', skill.path ?? '');
  const base = path === '/' ? skill.url.replace(/\/+$/, '').replace(/\.git$/, '') : path;
  return folderName(posix.basename(base));
}

function folderName(name: string): string {
  return name.replaceAll(/[^\w.-]+/g, '-').replace(/^\.+/, '') || 'skill';
}
