import type { Tokens } from '../../../src/gateway/usage/meter.js';
import type { Conversation, Message, ModelApi, ModelEvent, Reply } from './conversation.js';

interface Block {
  type: string;
  text?: string;
  content?: string | Block[];
}

interface Request {
  system?: string | Block[];
  messages: { role: 'user' | 'assistant'; content: string | Block[] }[];
  tools?: { name: string; input_schema?: { properties?: Record<string, { type?: string }> } }[];
}

const textOf = (content: string | Block[] | undefined): string =>
  typeof content === 'string' ? content : (content ?? []).map(({ text }) => text ?? '').join('\n');

function read(body: unknown): Conversation {
  const { system, messages, tools = [] } = body as Request;
  return {
    messages: [
      { role: 'system', text: textOf(system) },
      ...messages.flatMap(({ role, content }): Message[] => {
        if (typeof content === 'string') return [{ role, text: content }];
        const results = content
          .filter(({ type }) => type === 'tool_result')
          .map((block): Message => ({ role: 'tool', text: textOf(block.content) }));
        const text = textOf(content.filter(({ type }) => type === 'text'));
        return results.length > 0 ? results : [{ role, text }];
      }),
    ],
    tools: tools.map(({ name, input_schema: schema }) => ({
      name,
      parameters: typesOf(schema?.properties),
    })),
  };
}

export function typesOf(
  properties: Record<string, { type?: string | string[] }> = {},
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(properties).map(([name, { type }]) => [name, [type ?? ''].flat().join()]),
  );
}

/** The events of a streamed answer, in order. */
function stream(reply: Reply, model: string, usage: Tokens): ModelEvent[] {
  const begun = { ...usage, output_tokens: 1 };
  const block =
    reply.kind === 'text'
      ? { type: 'text', text: '' }
      : { type: 'tool_use', id: `toolu_${Date.now()}`, name: reply.tool.name, input: {} };
  const delta =
    reply.kind === 'text'
      ? { type: 'text_delta', text: reply.text }
      : { type: 'input_json_delta', partial_json: JSON.stringify(reply.input) };
  const stopReason = reply.kind === 'text' ? 'end_turn' : 'tool_use';
  const message = { id: `msg_${Date.now()}`, type: 'message', role: 'assistant', model };
  const events = [
    {
      type: 'message_start',
      message: { ...message, content: [], stop_reason: null, stop_sequence: null, usage: begun },
    },
    { type: 'content_block_start', index: 0, content_block: block },
    { type: 'content_block_delta', index: 0, delta },
    { type: 'content_block_stop', index: 0 },
    {
      type: 'message_delta',
      delta: { stop_reason: stopReason, stop_sequence: null },
      usage: { output_tokens: usage.output_tokens },
    },
    { type: 'message_stop' },
  ];
  const reports: Record<string, Tokens> = { message_start: begun, message_delta: usage };
  return events.map((event) => [event.type, event, reports[event.type]]);
}

/** The same answer in one piece. */
function whole(reply: Reply, model: string, usage: Tokens): unknown {
  const content =
    reply.kind === 'text'
      ? { type: 'text', text: reply.text }
      : { type: 'tool_use', id: 'toolu_1', name: reply.tool.name, input: reply.input };
  return {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model,
    content: [content],
    stop_reason: reply.kind === 'text' ? 'end_turn' : 'tool_use',
    usage,
  };
}

function error(status: number): unknown {
  const type = { 401: 'authentication_error', 429: 'rate_limit_error' }[status] ?? 'api_error';
  return { type: 'error', error: { type, message: `scripted failure ${status}` } };
}

export const anthropic: ModelApi = {
  matches: /\/v1\/messages$/,
  read,
  stream,
  whole,
  error,
  writesCache: true,
};
