/** A bad environment variable. `message` is one line that names the variable and says what it takes. */
export class ConfigError extends Error {
  constructor(variable: string, problem: string) {
    super(`${variable}: ${problem}`);
    this.name = 'ConfigError';
  }
}

export type Environment = Readonly<Record<string, string | undefined>>;

const DURATION_UNITS: Record<string, number> = {
  ms: 0.001,
  s: 1,
  m: 60,
  h: 3600,
  d: 86_400,
};
const SIZE_UNITS: Record<string, number> = {
  b: 1,
  k: 2 ** 10,
  kb: 2 ** 10,
  kib: 2 ** 10,
  m: 2 ** 20,
  mb: 2 ** 20,
  mib: 2 ** 20,
  g: 2 ** 30,
  gb: 2 ** 30,
  gib: 2 ** 30,
};

/** Reads typed values out of an environment. An empty variable counts as not set. */
export class EnvironmentReader {
  constructor(private readonly env: Environment) {}

  text(name: string): string | undefined {
    const value = this.env[name]?.trim();
    return value === '' ? undefined : value;
  }

  integer(name: string, fallback: number, bounds: { min: number; max: number }): number {
    return this.number(name, fallback, bounds, /^\d+$/, 'a whole number');
  }

  /** Seconds that may have a fraction, so that tests need not wait for whole ones. */
  seconds(name: string, fallback: number, bounds: { min: number; max: number }): number {
    return this.number(name, fallback, bounds, /^\d+(\.\d+)?$/, 'a number of seconds');
  }

  /** A positive number that may have a fraction, or `undefined`. */
  fraction(name: string, bounds: { min: number; max: number }): number | undefined {
    if (this.text(name) === undefined) return undefined;
    return this.number(name, bounds.min, bounds, /^\d+(\.\d+)?$/, 'a number');
  }

  /** `90`, `90s`, `15m`, `24h`, `30d` → seconds. */
  duration(name: string, fallback: number): number {
    const value = this.text(name);
    if (value === undefined) return fallback;
    const seconds = parseDuration(value);
    if (seconds === undefined || seconds <= 0) {
      throw new ConfigError(
        name,
        `must be a duration such as 90s, 15m, 24h or 30d, not "${value}"`,
      );
    }
    return seconds;
  }

  /** `1048576`, `64KiB`, `256MiB`, `1g` → bytes. Units are powers of 1024. */
  bytes(name: string, fallback: number): number {
    const value = this.text(name);
    if (value === undefined) return fallback;
    const match = /^(\d+(?:\.\d+)?)\s*([a-z]*)$/.exec(value.toLowerCase());
    const unit = match && SIZE_UNITS[match[2] || 'b'];
    const bytes = unit ? Math.floor(Number(match[1]) * unit) : 0;
    if (!Number.isSafeInteger(bytes) || bytes <= 0) {
      throw new ConfigError(name, `must be a size such as 64KiB or 256MiB, not "${value}"`);
    }
    return bytes;
  }

  oneOf<const T extends string>(name: string, fallback: T, allowed: readonly T[]): T {
    const value = this.text(name);
    if (value === undefined) return fallback;
    const found = allowed.find((candidate) => candidate === value);
    if (found === undefined) {
      throw new ConfigError(name, `must be one of ${allowed.join(', ')}, not "${value}"`);
    }
    return found;
  }

  /** An absolute URL. The value is not repeated in the error: it may hold a password. */
  url(name: string, protocols: readonly string[]): string | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const url = URL.canParse(value) ? new URL(value) : undefined;
    if (!url || !protocols.includes(url.protocol.slice(0, -1))) {
      throw new ConfigError(name, `must be a URL that starts with ${protocols.join(':// or ')}://`);
    }
    return value;
  }

  private number(
    name: string,
    fallback: number,
    { min, max }: { min: number; max: number },
    shape: RegExp,
    what: string,
  ): number {
    const value = this.text(name);
    if (value === undefined) return fallback;
    const number = shape.test(value) ? Number(value) : Number.NaN;
    if (!(number >= min && number <= max)) {
      throw new ConfigError(name, `must be ${what} from ${min} to ${max}, not "${value}"`);
    }
    return number;
  }
}

/** @returns seconds, or `undefined` when `text` is no duration. A bare number is seconds. */
export function parseDuration(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?$/.exec(text.trim().toLowerCase());
  if (!match) return undefined;
  return Number(match[1]) * (DURATION_UNITS[match[2] ?? 's'] ?? 1);
}
