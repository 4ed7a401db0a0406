import { typesOf } from './anthropic.js';
import type { Conversation, Message, ModelApi, Reply } from './conversation.js';

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

function stream(reply: Reply, model: string): [event: string, data: unknown][] {
  return [['', whole(reply, model)]];
}

function whole(reply: Reply, model: string): unknown {
  const part =
    reply.kind === 'text'
      ? { text: reply.text }
      : { functionCall: { name: reply.tool.name, args: reply.input } };
  return {
    candidates: [{ index: 0, content: { role: 'model', parts: [part] }, finishReason: 'STOP' }],
    usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 },
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
