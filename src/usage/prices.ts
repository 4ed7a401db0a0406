import { join } from 'node:path';
import { readConfiguredFile } from '../common/configured-file.js';
import { packageRoot } from '../common/package-root.js';
import { ConfigError } from '../config/parse.js';
import type { Tokens } from '../gateway/usage/meter.js';

const DEFAULT_FILE = 'prices.json';
const VARIABLE = 'PRICES_FILE';
const PER_TOKENS = 1_000_000;
/** What providers add to the name of a model for one of its versions: a date, a number, `latest`, `preview`. */
const VERSION = /^(-(\d{2,8}|latest|preview|exp))*$/;

/** In USD for a million tokens. */
interface Price {
  input: number;
  output: number;
  /** Default: the price of other input. */
  cache_read?: number;
  cache_creation?: number;
}

/** What requests to models cost, from a dated file. */
export class Prices {
  private constructor(
    /** The day of the prices, as the file says. */
    readonly date: string,
    private readonly models: ReadonlyMap<string, Price>,
  ) {}

  /**
   * @param file the configured file; without it, the one that comes with the service
   * @throws ConfigError if the file cannot be read or is not a price list
   */
  static load(file?: string): Prices {
    let content: { date?: unknown; models?: unknown };
    try {
      const path = file ?? join(packageRoot(), DEFAULT_FILE);
      content = JSON.parse(readConfiguredFile(path)) as typeof content;
    } catch (error) {
      throw new ConfigError(VARIABLE, `cannot be read: ${(error as Error).message}`);
    }
    const { date, models } = content;
    if (typeof date !== 'string' || typeof models !== 'object' || models === null)
      throw new ConfigError(VARIABLE, 'must be JSON with "date" and "models"');
    const entries = Object.entries(models as Record<string, unknown>);
    const wrong = entries.find(([, price]) => !isPrice(price));
    if (wrong)
      throw new ConfigError(
        VARIABLE,
        `needs the numbers "input" and "output" for ${JSON.stringify(wrong[0])}`,
      );
    return new Prices(date, new Map(entries as [string, Price][]));
  }

  /**
   * The name in the list of a model. A model that is not listed itself is found as a version of a listed one:
   * `claude-haiku-4-5-20251001` as `claude-haiku-4-5`.
   */
  nameOf(model: string): string | undefined {
    const plain = model.slice(model.lastIndexOf('/') + 1);
    if (this.models.has(plain)) return plain;
    return [...this.models.keys()]
      .filter((name) => plain.startsWith(name) && VERSION.test(plain.slice(name.length)))
      .toSorted((a, b) => b.length - a.length)[0];
  }

  /** In USD; `null` if the price is not known. */
  costOf(model: string, tokens: Tokens): number | null {
    const price = this.models.get(this.nameOf(model) ?? '');
    if (price === undefined) return null;
    const { input, output, cache_read: read = input, cache_creation: creation = input } = price;
    return (
      (tokens.input_tokens * input +
        tokens.output_tokens * output +
        tokens.cache_read_input_tokens * read +
        tokens.cache_creation_input_tokens * creation) /
      PER_TOKENS
    );
  }
}

function isPrice(value: unknown): value is Price {
  const {
    input,
    output,
    cache_read: read = 0,
    cache_creation: creation = 0,
  } = (value ?? {}) as Partial<Price>;
  return [input, output, read, creation].every(
    (number) => typeof number === 'number' && Number.isFinite(number) && number >= 0,
  );
}
