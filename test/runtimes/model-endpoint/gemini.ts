import { typesOf } from './anthropic.js';
import type { Tokens } from '../../../src/gateway/usage/meter.js';
import type { Conversation, Message, ModelApi, ModelEvent, Reply } from './conversation.js';

interface Part {
  text?: string;
  thought?: boolean;
  functionResponse?: { response: unknown };
}

interface Schema {
  properties?: Record<string, { type?: string }>;
}

interface Request {
  systemInstruction?: { parts?: Part[] };
  contents: { role?: string; parts: Part[] }[];
  tools?: {
    functionDeclarations?: { name: string; parameters?: Schema; parametersJsonSchema?: Schema }[];
  }[];
}

const textOf = (parts: readonly Part[] = []): string =>
  parts.map(({ text, thought }) => (thought ? '' : (text ?? ''))).join('\n');

function read(body: unknown): Conversation {
  const { systemInstruction, contents, tools = [] } = body as Request;
  return {
    messages: [
      { role: 'system', text: textOf(systemInstruction?.parts) },
      ...contents.flatMap(({ role, parts }): Message[] => {
        const results = parts.flatMap(({ functionResponse }): Message[] =>
          functionResponse
            ? [{ role: 'tool', text: JSON.stringify(functionResponse.response) }]
            : [],
        );
        if (results.length > 0) return results;
        return [{ role: role === 'model' ? 'assistant' : 'user', text: textOf(parts) }];
      }),
    ],
    tools: tools.flatMap(({ functionDeclarations = [] }) =>
      functionDeclarations.map(({ name, parameters, parametersJsonSchema }) => ({
        name,
        parameters: typesOf((parametersJsonSchema ?? parameters)?.properties),
      })),
    ),
  };
}

function stream(reply: Reply, model: string, usage: Tokens): ModelEvent[] {
  return [['', whole(reply, model, usage), usage]];
}

function whole(reply: Reply, model: string, usage: Tokens): unknown {
  const prompt = usage.input_tokens + usage.cache_read_input_tokens;
  const part =
    reply.kind === 'text'
      ? { text: reply.text }
      : { functionCall: { name: reply.tool.name, args: reply.input } };
  return {
    candidates: [{ index: 0, content: { role: 'model', parts: [part] }, finishReason: 'STOP' }],
    usageMetadata: {
      promptTokenCount: prompt,
      cachedContentTokenCount: usage.cache_read_input_tokens,
      candidatesTokenCount: usage.output_tokens - 2,
      thoughtsTokenCount: 2,
      totalTokenCount: prompt + usage.output_tokens,
    },
    modelVersion: model,
  };
}

function error(status: number): unknown {
  const name = { 401: 'UNAUTHENTICATED', 429: 'RESOURCE_EXHAUSTED' }[status] ?? 'INTERNAL';
  return { error: { code: status, message: `scripted failure ${status}`, status: name } };
}

export const gemini: ModelApi = {
  matches: /\/v1beta\/models\/[^/]+:(streamG|g)enerateContent$/,
  read,
  stream,
  whole,
  error,
};
