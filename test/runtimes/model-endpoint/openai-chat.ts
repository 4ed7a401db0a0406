import { typesOf } from './anthropic.js';
import { openaiError } from './openai-responses.js';
import type { Tokens } from '../../../src/gateway/usage/meter.js';
import type { Conversation, Message, ModelApi, ModelEvent, Reply } from './conversation.js';

interface Request {
  messages: { role: string; content?: string | { text?: string }[] | null }[];
  tools?: {
    function: { name: string; parameters?: { properties?: Record<string, { type?: string }> } };
  }[];
}

const ROLES: readonly string[] = ['user', 'assistant', 'tool'] satisfies Message['role'][];

function read(body: unknown): Conversation {
  const { messages, tools = [] } = body as Request;
  return {
    messages: messages.map(({ role, content }) => ({
      role: ROLES.includes(role) ? (role as Message['role']) : 'system',
      text:
        typeof content === 'string' ? content : (content ?? []).map((part) => part.text).join('\n'),
    })),
    tools: tools.map(({ function: { name, parameters } }) => ({
      name,
      parameters: typesOf(parameters?.properties),
    })),
  };
}

function stream(reply: Reply, model: string, used: Tokens): ModelEvent[] {
  const chunk = (delta: unknown, finish: string | null) => ({
    id: 'chatcmpl-1',
    object: 'chat.completion.chunk',
    created: 1,
    model,
    choices: [{ index: 0, delta, finish_reason: finish }],
  });
  const call = reply.kind === 'call' && {
    index: 0,
    id: `call_${Date.now()}`,
    type: 'function',
    function: { name: reply.tool.name, arguments: JSON.stringify(reply.input) },
  };
  const delta = reply.kind === 'text' ? { content: reply.text } : { tool_calls: [call] };
  const prompt = used.input_tokens + used.cache_read_input_tokens;
  const usage = {
    prompt_tokens: prompt,
    prompt_tokens_details: { cached_tokens: used.cache_read_input_tokens },
    completion_tokens: used.output_tokens,
    total_tokens: prompt + used.output_tokens,
  };
  return [
    ['', chunk({ role: 'assistant', ...delta }, null)],
    ['', { ...chunk({}, reply.kind === 'text' ? 'stop' : 'tool_calls'), usage }, used],
    ['', '[DONE]'],
  ];
}

export const openaiChat: ModelApi = {
  matches: /\/v1\/chat\/completions$/,
  read,
  stream,
  error: openaiError,
};
