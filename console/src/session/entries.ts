import type { TerminalEvent } from '../api/event-source.js';

/** How a tool changed a file, as far as its input says so. */
export type Edit =
  { path: string; before: string; after: string } | { path: string; patch: string };

interface Base {
  /** Stable for the life of the page. */
  key: number;
  /** Goes up whenever the entry changes, so that only what changed is drawn again. */
  revision: number;
}

/** One thing that a reader of a transcript sees. */
export type Entry = Base &
  (
    | { kind: 'turn'; turn: number }
    | { kind: 'text'; text: string }
    | { kind: 'thinking'; text: string }
    | ToolCall
    | { kind: 'note'; tone: 'info' | 'error'; text: string; details?: unknown }
    | { kind: 'raw'; stream: 'stdout' | 'stderr'; text: string }
    | { kind: 'end'; event: TerminalEvent }
  );

export interface ToolCall {
  kind: 'tool';
  id: string;
  name: string;
  /** The one argument that matters: a command, a path, an address. */
  argument: string;
  input: unknown;
  state: 'running' | 'done' | 'failed';
  output?: string;
  edits?: readonly Edit[];
  /** When the call and its result arrived here (`performance.now()`); only of what arrived live. */
  startedAt?: number;
  durationMs?: number;
}

type Without<T> = T extends unknown ? Omit<T, 'key' | 'revision'> : never;
export type NewEntry = Without<Entry>;

/** What the readers of a runtime's lines write to. */
export interface Transcript {
  add(entry: NewEntry): Entry;
  /** Marks an entry as changed. */
  changed(entry: Entry): void;
  /** The call of a tool by the runtime's id for it. */
  tool(id: string): (Entry & ToolCall) | undefined;
  /** The latest entry. */
  last(): Entry | undefined;
  /** The time if what is read now arrives live. */
  now(): number | undefined;
}

/** Reads the lines of one runtime. */
export interface LineReader {
  /** @returns `false` if the object is not understood: it is then shown as it is. */
  read(line: Json, transcript: Transcript): boolean;
}

export type Json = Readonly<Record<string, unknown>>;

export const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export const objectAt = (value: unknown, name: string): Json => {
  const member = isObject(value) ? value[name] : undefined;
  return isObject(member) ? member : {};
};

export const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

/** Starts a tool call, or finds it where the runtime reports it several times. */
export function startTool(
  transcript: Transcript,
  call: { id: string; name: string; input: unknown; edits?: readonly Edit[] | undefined },
): Entry & ToolCall {
  const known = transcript.tool(call.id);
  if (known) {
    known.input = call.input;
    known.argument = argumentOf(call.input);
    if (call.edits) known.edits = call.edits;
    transcript.changed(known);
    return known;
  }
  const startedAt = transcript.now();
  return transcript.add({
    kind: 'tool',
    state: 'running',
    id: call.id,
    name: call.name,
    input: call.input,
    argument: argumentOf(call.input),
    ...(call.edits && { edits: call.edits }),
    ...(startedAt !== undefined && { startedAt }),
  }) as Entry & ToolCall;
}

/** Ends a tool call. @returns `false` if there is no such call */
export function endTool(
  transcript: Transcript,
  id: string,
  result: { failed: boolean; output: string },
): boolean {
  const call = transcript.tool(id);
  if (!call) return false;
  call.state = result.failed ? 'failed' : 'done';
  call.output = result.output;
  const now = transcript.now();
  if (now !== undefined && call.startedAt !== undefined) call.durationMs = now - call.startedAt;
  transcript.changed(call);
  return true;
}

const ARGUMENTS = [
  'command',
  'cmd',
  'file_path',
  'filePath',
  'absolute_path',
  'notebook_path',
  'path',
  'pattern',
  'query',
  'url',
  'description',
  'prompt',
  'name',
  'text',
];

/** The one argument that tells calls of the same tool apart. */
function argumentOf(input: unknown): string {
  if (typeof input === 'string') return input;
  if (!isObject(input)) return '';
  for (const name of ARGUMENTS) {
    const value = input[name];
    if (typeof value === 'string' && value !== '') return value;
    if (Array.isArray(value) && value.every((part) => typeof part === 'string')) {
      return value.join(' ');
    }
  }
  return '';
}

/** The text of what tools give: a string, or a list of parts as in MCP. */
export function outputOf(content: unknown): string {
  if (typeof content === 'string') return content;
  if (content === undefined || content === null) return '';
  if (Array.isArray(content)) {
    return content
      .map((part) =>
        isObject(part) && typeof part['text'] === 'string'
          ? part['text']
          : JSON.stringify(part, null, 2),
      )
      .join('\n');
  }
  return JSON.stringify(content, null, 2);
}
