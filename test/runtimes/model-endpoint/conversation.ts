import type { Tokens } from '../../../src/gateway/usage/meter.js';

/** One message of a conversation, whatever API it came by. */
export interface Message {
  role: 'system' | 'user' | 'assistant' | 'tool';
  text: string;
}

/** A tool that the model may call. */
export interface Tool {
  name: string;
  /** Names of the parameters with their JSON types. */
  parameters: Readonly<Record<string, string>>;
  /** Calls carry the namespace beside the name, where an API groups tools. */
  namespace?: string;
}

export interface Conversation {
  messages: readonly Message[];
  tools: readonly Tool[];
}

/** What the model answers. */
export type Reply =
  { kind: 'text'; text: string } | { kind: 'call'; tool: Tool; input: Record<string, unknown> };

/** An event of a streamed answer; the third member is what it reports as used so far. */
export type ModelEvent = [event: string, data: unknown, reported?: Tokens];

/** One of the ways in which programs speak with a model. */
export interface ModelApi {
  /** The paths at which it is served. */
  matches: RegExp;
  read(body: unknown): Conversation;
  /** The events of a streamed answer, in order. */
  stream(reply: Reply, model: string, usage: Tokens): ModelEvent[];
  /** The same answer in one piece, where somebody asks for it. */
  whole?(reply: Reply, model: string, usage: Tokens): unknown;
  /** Whether usage has tokens that were written to a cache. */
  writesCache?: boolean;
  /** The body that goes with a status. */
  error(status: number): unknown;
}

/** What goes wrong on demand. */
export type Fault = '401' | '429' | '500' | 'cut' | 'hang' | 'slow';

const DIRECTIVE = /%%(shell|mcp|skill|fault) (.*?)%%/gs;
const SHELLS = new Set(['bash', 'shell', 'exec_command', 'shell_command', 'run_shell_command']);
const SKILLS = new Set(['skill', 'activate_skill']);

/**
 * The model: it does what the last prompt says, one directive after the other, and then reports what it was sent.
 * `%%shell COMMAND%%` calls the program's own shell tool, `%%mcp SERVER TOOL JSON%%` a tool of a server's,
 * `%%skill NAME%%` the skill tool where there is one, `%%fault KIND%%` breaks the answer.
 */
export function replyTo({ messages, tools }: Conversation): Reply {
  if (tools.length === 0) return { kind: 'text', text: 'A title' };
  const last = messages.findLastIndex(({ role, text }) => role === 'user' && text.includes('%%'));
  const results = messages.slice(last + 1).filter(({ role }) => role === 'tool');
  const steps = last < 0 ? [] : directivesIn(messages[last]?.text ?? '');
  const calls = steps.flatMap(({ kind, what }) => callFor(kind, what, tools) ?? []);
  const next = calls[results.length];
  if (next) return { kind: 'call', ...next };
  return { kind: 'text', text: report(messages, results.at(-1)?.text ?? 'nothing') };
}

/** What is to go wrong with the answer to this conversation. */
export function faultIn({ messages }: Conversation): Fault | undefined {
  const last = messages.findLast(({ role, text }) => role === 'user' && text.includes('%%'));
  const found = directivesIn(last?.text ?? '').find(({ kind }) => kind === 'fault');
  return found?.what as Fault | undefined;
}

function directivesIn(text: string): { kind: string; what: string }[] {
  return [...text.matchAll(DIRECTIVE)].map(([, kind = '', what = '']) => ({ kind, what }));
}

function callFor(
  kind: string,
  what: string,
  tools: readonly Tool[],
): { tool: Tool; input: Record<string, unknown> }[] | undefined {
  if (kind === 'shell') {
    const tool = tools.find(({ name }) => SHELLS.has(name.toLowerCase()));
    return tool && [{ tool, input: shellInput(tool, what) }];
  }
  if (kind === 'skill') {
    const tool = tools.find(({ name }) => SKILLS.has(name.toLowerCase()));
    const parameter = Object.keys(tool?.parameters ?? {}).find((name) =>
      ['skill', 'name', 'command'].includes(name),
    );
    return tool && parameter ? [{ tool, input: { [parameter]: what } }] : undefined;
  }
  if (kind !== 'mcp') return undefined;
  const [, server = '', name = '', json] = /^(\S+) (\S+) ?(.*)$/s.exec(what) ?? [];
  const tool = tools.find((candidate) => {
    const full = `${candidate.namespace ?? ''}_${candidate.name}`;
    return full.includes(server) && full.endsWith(name);
  });
  return tool && [{ tool, input: JSON.parse(json || '{}') as Record<string, unknown> }];
}

function shellInput({ parameters }: Tool, command: string): Record<string, unknown> {
  const name = 'cmd' in parameters ? 'cmd' : 'command';
  return {
    [name]: parameters[name] === 'array' ? ['bash', '-lc', command] : command,
    ...('description' in parameters ? { description: 'What the prompt says' } : {}),
  };
}

/** Words are how tests find out what came along: each prompt has one of its own. */
function report(messages: readonly Message[], result: string): string {
  const spoken = messages.filter(({ role }) => role !== 'system');
  const words = new Set(
    spoken.flatMap(({ role, text }) => (role === 'tool' ? [] : (text.match(/word-\w+/g) ?? []))),
  );
  return `I was sent ${spoken.length} messages with ${[...words].join(' ')} and the tool said: ${result.trim().slice(0, 400)}`;
}
