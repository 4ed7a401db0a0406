import { typesOf } from './anthropic.js';
import type { Tokens } from '../../../src/gateway/usage/meter.js';
import type { Conversation, Message, ModelApi, ModelEvent, Reply, Tool } from './conversation.js';

interface Item {
  type?: string;
  role?: string;
  content?: string | { text?: string }[];
  output?: unknown;
}

interface ToolSpec {
  type: string;
  name?: string;
  parameters?: { properties?: Record<string, { type?: string }> };
  tools?: ToolSpec[];
}

interface Request {
  instructions?: string;
  input: string | Item[];
  tools?: ToolSpec[];
}

function read(body: unknown): Conversation {
  const { instructions = '', input, tools = [] } = body as Request;
  const items: Item[] = typeof input === 'string' ? [{ role: 'user', content: input }] : input;
  return {
    messages: [{ role: 'system', text: instructions }, ...items.flatMap(message)],
    tools: tools.flatMap((tool) => toolsOf(tool)),
  };
}

function message({ type = 'message', role, content, output }: Item): Message[] {
  if (type.endsWith('_call_output')) {
    return [{ role: 'tool', text: typeof output === 'string' ? output : JSON.stringify(output) }];
  }
  if (type !== 'message') return [];
  const text =
    typeof content === 'string' ? content : (content ?? []).map((part) => part.text).join('\n');
  return [{ role: role === 'user' || role === 'assistant' ? role : 'system', text }];
}

function toolsOf(tool: ToolSpec, namespace?: string): Tool[] {
  if (tool.tools) return tool.tools.flatMap((inner) => toolsOf(inner, tool.name));
  if (tool.type !== 'function' || tool.name === undefined) return [];
  return [{ name: tool.name, namespace, parameters: typesOf(tool.parameters?.properties) }];
}

function stream(reply: Reply, model: string, used: Tokens): ModelEvent[] {
  const id = `resp_${Date.now()}`;
  const item =
    reply.kind === 'text'
      ? {
          type: 'message',
          id: 'msg_1',
          role: 'assistant',
          status: 'completed',
          content: [{ type: 'output_text', text: reply.text, annotations: [] }],
        }
      : {
          type: 'function_call',
          id: 'fc_1',
          call_id: `call_${Date.now()}`,
          name: reply.tool.name,
          ...(reply.tool.namespace === undefined ? {} : { namespace: reply.tool.namespace }),
          arguments: JSON.stringify(reply.input),
          status: 'completed',
        };
  const response = {
    id,
    object: 'response',
    model,
    status: 'in_progress',
    output: [] as unknown[],
  };
  const delta = {
    type: 'response.output_text.delta',
    item_id: 'msg_1',
    output_index: 0,
    content_index: 0,
    delta: reply.kind === 'text' ? reply.text : '',
  };
  const added = {
    ...item,
    status: 'in_progress',
    ...(reply.kind === 'text' ? { content: [] } : {}),
  };
  const prompt = used.input_tokens + used.cache_read_input_tokens;
  const usage = {
    input_tokens: prompt,
    output_tokens: used.output_tokens,
    total_tokens: prompt + used.output_tokens,
    input_tokens_details: { cached_tokens: used.cache_read_input_tokens },
    output_tokens_details: { reasoning_tokens: 1 },
  };
  const events = [
    { type: 'response.created', response },
    { type: 'response.output_item.added', output_index: 0, item: added },
    ...(reply.kind === 'text' ? [delta] : []),
    { type: 'response.output_item.done', output_index: 0, item },
    {
      type: 'response.completed',
      response: { ...response, status: 'completed', output: [item], usage },
    },
  ];
  return events.map((event, index) => [
    event.type,
    { ...event, sequence_number: index },
    event.type === 'response.completed' ? used : undefined,
  ]);
}

export function openaiError(status: number): unknown {
  return {
    error: { message: `scripted failure ${status}`, type: 'scripted', code: `scripted_${status}` },
  };
}

export const openaiResponses: ModelApi = {
  matches: /\/v1\/responses$/,
  read,
  stream,
  error: openaiError,
};
