import { Transform } from 'node:stream';
import type { GrantedApi } from '../grants.js';
import { EventData } from './event-data.js';
import { JsonFields } from './json-fields.js';

/** Tokens of one or more requests, counted as Anthropic does: input tokens do not include cached ones. */
export interface Tokens {
  input_tokens: number;
  output_tokens: number;
  cache_read_input_tokens: number;
  cache_creation_input_tokens: number;
}

interface Format {
  /** The paths below which the members may be; `''` for the root. */
  below: readonly string[];
  model: string;
  counts: readonly string[];
  tokens: (count: (name: string) => number) => Tokens;
}

/** How each provider reports usage. The counts of a stream are cumulative, so the highest one is the result. */
const FORMATS: Readonly<Record<GrantedApi, Format>> = {
  anthropic: {
    below: ['', 'message.'],
    model: 'model',
    counts: [
      'usage.input_tokens',
      'usage.output_tokens',
      'usage.cache_read_input_tokens',
      'usage.cache_creation_input_tokens',
    ],
    tokens: (count) => ({
      input_tokens: count('usage.input_tokens'),
      output_tokens: count('usage.output_tokens'),
      cache_read_input_tokens: count('usage.cache_read_input_tokens'),
      cache_creation_input_tokens: count('usage.cache_creation_input_tokens'),
    }),
  },
  openai: {
    below: ['', 'response.'],
    model: 'model',
    counts: [
      'usage.input_tokens',
      'usage.input_tokens_details.cached_tokens',
      'usage.output_tokens',
      'usage.prompt_tokens',
      'usage.prompt_tokens_details.cached_tokens',
      'usage.completion_tokens',
    ],
    tokens: (count) => {
      const cached =
        count('usage.input_tokens_details.cached_tokens') +
        count('usage.prompt_tokens_details.cached_tokens');
      return {
        input_tokens: Math.max(
          0,
          count('usage.input_tokens') + count('usage.prompt_tokens') - cached,
        ),
        output_tokens: count('usage.output_tokens') + count('usage.completion_tokens'),
        cache_read_input_tokens: cached,
        cache_creation_input_tokens: 0,
      };
    },
  },
  google: {
    below: [''],
    model: 'modelVersion',
    counts: [
      'usageMetadata.promptTokenCount',
      'usageMetadata.cachedContentTokenCount',
      'usageMetadata.toolUsePromptTokenCount',
      'usageMetadata.candidatesTokenCount',
      'usageMetadata.thoughtsTokenCount',
    ],
    tokens: (count) => {
      const cached = count('usageMetadata.cachedContentTokenCount');
      return {
        input_tokens:
          Math.max(0, count('usageMetadata.promptTokenCount') - cached) +
          count('usageMetadata.toolUsePromptTokenCount'),
        output_tokens:
          count('usageMetadata.candidatesTokenCount') + count('usageMetadata.thoughtsTokenCount'),
        cache_read_input_tokens: cached,
        cache_creation_input_tokens: 0,
      };
    },
  },
};

/** Reads the usage that a provider reports in a response, while the response passes. */
export class ResponseMeter {
  private readonly counts = new Map<string, number>();
  private readonly format: Format;
  private readonly reader: { push(bytes: Buffer): void };
  private reportedModel: string | undefined;

  constructor(api: GrantedApi, contentType: string) {
    this.format = FORMATS[api];
    const { below, model, counts } = this.format;
    const names = new Map(
      [model, ...counts].flatMap((name) =>
        below.map((prefix): [string, string] => [prefix + name, name]),
      ),
    );
    const fields = new JsonFields(new Set(names.keys()), (path, value) =>
      this.note(names.get(path) ?? '', value),
    );
    this.reader = /^text\/event-stream/i.test(contentType) ? new EventData(fields) : fields;
  }

  push(bytes: Buffer): void {
    this.reader.push(bytes);
  }

  /** Whether the provider has reported any tokens so far. */
  get hasReport(): boolean {
    return this.counts.size > 0;
  }

  /** The model as the response names it; `undefined` if it does not, or not yet. */
  get model(): string | undefined {
    return this.reportedModel;
  }

  get tokens(): Tokens {
    return this.format.tokens((name) => this.counts.get(name) ?? 0);
  }

  private note(name: string, value: unknown): void {
    if (name === this.format.model) {
      if (typeof value === 'string' && value !== '') this.reportedModel = value;
    } else if (Number.isSafeInteger(value) && (value as number) >= 0)
      this.counts.set(name, Math.max(this.counts.get(name) ?? 0, value as number));
  }
}

/** Passes bytes on unchanged and then shows them to a meter. @param noted called after each chunk */
export function metered(meter: ResponseMeter, noted: () => void): Transform {
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      done(null, chunk);
      meter.push(chunk);
      noted();
    },
  });
}
