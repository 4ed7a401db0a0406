import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, it } from '@jest/globals';
import type { GrantedApi } from '../grants.js';
import { ResponseMeter, type Tokens } from './meter.js';

const sse = (...events: unknown[]): string =>
  events
    .map((data) => {
      const type = (data as { type?: string }).type;
      const text = typeof data === 'string' ? data : JSON.stringify(data);
      return `${type === undefined ? '' : `event: ${type}\n`}data: ${text}\n\n`;
    })
    .join('');

/** Text that looks like a report, in places where it is none. */
const DECOY = 'usage":{"input_tokens":999,"output_tokens":999},"model":"decoy\\';
const tokens = (input: number, output: number, read = 0, created = 0): Tokens => ({
  input_tokens: input,
  output_tokens: output,
  cache_read_input_tokens: read,
  cache_creation_input_tokens: created,
});

const CASES: [string, GrantedApi, string, string, string, Tokens][] = [
  [
    'Anthropic stream',
    'anthropic',
    'text/event-stream; charset=utf-8',
    sse(
      {
        type: 'message_start',
        message: {
          id: 'msg_1',
          type: 'message',
          role: 'assistant',
          model: 'claude-sonnet-4-5-20250929',
          content: [],
          stop_reason: null,
          usage: {
            input_tokens: 21,
            cache_creation_input_tokens: 188,
            cache_read_input_tokens: 1031,
            cache_creation: { ephemeral_5m_input_tokens: 188, ephemeral_1h_input_tokens: 0 },
            output_tokens: 1,
            service_tier: 'standard',
          },
        },
      },
      { type: 'ping' },
      {
        type: 'content_block_delta',
        index: 0,
        delta: { type: 'text_delta', text: DECOY },
      },
      {
        type: 'message_delta',
        delta: { stop_reason: 'end_turn', stop_sequence: null },
        usage: { input_tokens: 0, output_tokens: 503 },
      },
      { type: 'message_stop' },
    ),
    'claude-sonnet-4-5-20250929',
    tokens(21, 503, 1031, 188),
  ],
  [
    'Anthropic JSON',
    'anthropic',
    'application/json',
    JSON.stringify(
      {
        id: 'msg_1',
        model: 'claude-haiku-4-5',
        content: [
          { type: 'text', text: DECOY },
          {
            type: 'tool_use',
            name: 'x',
            input: { model: 'decoy', usage: { input_tokens: 999 }, message: { model: 'decoy' } },
          },
        ],
        usage: { input_tokens: 10, cache_read_input_tokens: null, output_tokens: 5 },
      },
      null,
      2,
    ),
    'claude-haiku-4-5',
    tokens(10, 5),
  ],
  [
    'OpenAI Responses stream',
    'openai',
    'text/event-stream',
    sse(
      { type: 'response.created', response: { id: 'r', model: 'gpt-5.1-codex', usage: null } },
      { type: 'response.output_text.delta', delta: DECOY },
      {
        type: 'response.completed',
        response: {
          id: 'r',
          model: 'gpt-5.1-codex',
          output: [{ type: 'function_call', arguments: '{}', usage: { input_tokens: 999 } }],
          usage: {
            input_tokens: 1200,
            input_tokens_details: { cached_tokens: 1024 },
            output_tokens: 300,
            output_tokens_details: { reasoning_tokens: 200 },
            total_tokens: 1500,
          },
        },
      },
    ),
    'gpt-5.1-codex',
    tokens(176, 300, 1024),
  ],
  [
    'OpenAI Responses JSON',
    'openai',
    'application/json',
    JSON.stringify({
      model: 'gpt-5',
      metadata: { usage: DECOY, model: 'decoy' },
      output: [],
      usage: { input_tokens: 7, input_tokens_details: { cached_tokens: 0 }, output_tokens: 3 },
    }),
    'gpt-5',
    tokens(7, 3),
  ],
  [
    'OpenAI Chat Completions stream',
    'openai',
    'text/event-stream',
    sse(
      { id: 'c', model: 'gpt-4.1', choices: [{ delta: { content: DECOY } }], usage: null },
      {
        id: 'c',
        model: 'gpt-4.1',
        choices: [],
        usage: {
          prompt_tokens: 2006,
          completion_tokens: 300,
          total_tokens: 2306,
          prompt_tokens_details: { cached_tokens: 1920, audio_tokens: 0 },
          completion_tokens_details: { reasoning_tokens: 0 },
        },
      },
      '[DONE]',
    ),
    'gpt-4.1',
    tokens(86, 300, 1920),
  ],
  [
    'OpenAI Chat Completions JSON',
    'openai',
    'application/json',
    JSON.stringify({
      model: 'gpt-4.1',
      choices: [{ message: { content: DECOY } }],
      usage: { prompt_tokens: 9, completion_tokens: 2 },
    }),
    'gpt-4.1',
    tokens(9, 2),
  ],
  [
    'Gemini stream',
    'google',
    'text/event-stream',
    sse(
      {
        candidates: [{ content: { parts: [{ text: DECOY }] } }],
        usageMetadata: { promptTokenCount: 100, candidatesTokenCount: 2, totalTokenCount: 102 },
        modelVersion: 'gemini-2.5-pro',
      },
      {
        candidates: [
          { content: { parts: [{ functionCall: { args: { modelVersion: 'decoy' } } }] } },
        ],
        usageMetadata: {
          promptTokenCount: 100,
          cachedContentTokenCount: 60,
          toolUsePromptTokenCount: 5,
          candidatesTokenCount: 20,
          thoughtsTokenCount: 30,
          totalTokenCount: 155,
          promptTokensDetails: [{ modality: 'TEXT', tokenCount: 100 }],
        },
        modelVersion: 'gemini-2.5-pro',
      },
    ),
    'gemini-2.5-pro',
    tokens(45, 50, 60),
  ],
  [
    'Gemini array',
    'google',
    'application/json',
    JSON.stringify([
      { usageMetadata: { promptTokenCount: 4, candidatesTokenCount: 1 } },
      { usageMetadata: { promptTokenCount: 4, candidatesTokenCount: 9 }, modelVersion: 'g' },
    ]),
    'g',
    tokens(4, 9),
  ],
];

it.each(CASES)('%s', (_name, api, type, body, model, expected) => {
  const bytes = Buffer.from(body);
  // Whatever the chunks are, down to single bytes.
  for (const size of [bytes.length, 1000, 17, 3, 1]) {
    const meter = new ResponseMeter(api, type);
    for (let at = 0; at < bytes.length; at += size) meter.push(bytes.subarray(at, at + size));
    expect({ size, model: meter.model, ...meter.tokens }).toEqual({ size, model, ...expected });
    expect(meter.hasReport).toBe(true);
  }
});

it('reads lines that end with CR LF, and goes on after an event that was cut', () => {
  const text = sse(
    { type: 'message_start', message: { model: 'm', usage: { input_tokens: 3 } } },
    '{"type":"message_delta","usage":{"output_tokens":',
    { type: 'message_delta', usage: { output_tokens: 4 } },
  );
  const meter = new ResponseMeter('anthropic', 'text/event-stream');
  meter.push(Buffer.from(text.replaceAll('\n', '\r\n')));
  expect(meter.tokens).toEqual(tokens(3, 4));
});

it('keeps what was reported before the response was cut', () => {
  const meter = new ResponseMeter('anthropic', 'text/event-stream');
  meter.push(
    Buffer.from(
      sse({ type: 'message_start', message: { usage: { input_tokens: 30, output_tokens: 1 } } }) +
        'event: content_block_delta\ndata: {"type":"content_bl',
    ),
  );
  expect(meter.tokens).toEqual(tokens(30, 1));
});

it('has no report of a response without usage, or with nonsense', () => {
  const meter = new ResponseMeter('openai', 'application/json');
  meter.push(
    Buffer.from('{"error":{"message":"no"},"usage":{"input_tokens":-1,"output_tokens":"7"}}'),
  );
  meter.push(Buffer.from('}}]]{{"usage":'));
  expect(meter.hasReport).toBe(false);
  expect(meter.model).toBeUndefined();
});

it('reads a large response in little memory', async () => {
  const meter = new ResponseMeter('openai', 'text/event-stream');
  const chunk = Buffer.from('text with \\"quotes\\" and \\u00e9 '.repeat(2000));
  meter.push(Buffer.from('data: {"response":{"model":"m","output":[{"text":"'));
  const before = process.memoryUsage().arrayBuffers + process.memoryUsage().heapUsed;
  let bytes = 0;
  while (bytes < 100 * 2 ** 20) {
    meter.push(chunk);
    bytes += chunk.length;
    // So that the limit of the test can end it.
    await nextTurn();
  }
  const grown = process.memoryUsage().arrayBuffers + process.memoryUsage().heapUsed - before;
  meter.push(Buffer.from('"}],"usage":{"input_tokens":8,"output_tokens":9}}}\n\n'));
  expect(meter.tokens).toEqual(tokens(8, 9));
  expect(grown).toBeLessThan(32 * 2 ** 20);
}, 60_000);
