import { isIP } from 'node:net';
import { readConfiguredFile } from '../common/configured-file.js';

/** An invalid environment variable. `message` is one line that names the variable and says what it expects. */
export class ConfigError extends Error {
  constructor(variable: string, problem: string) {
    super(`${variable}: ${problem}`);
    this.name = 'ConfigError';
  }
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** As in DNS, and with the underscores that some networks use. */
const HOST_NAME = /^(?!.*\.\.)[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_.])?$/i;

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

  /** Seconds, with a fraction if needed, so that tests can use short times. */
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

  /**
   * `1048576`, `64KiB`, `256MiB`, `1g` → bytes. Units are powers of 1024.
   * @param least the smallest size that is accepted, in words that this method reads
   */
  bytes(name: string, fallback: number, least = '1'): number {
    const value = this.text(name);
    if (value === undefined) return fallback;
    const bytes = parseBytes(value);
    if (bytes === undefined || bytes === 0) {
      throw new ConfigError(name, `must be a size such as 64KiB or 256MiB, not "${value}"`);
    }
    if (bytes < (parseBytes(least) ?? 0)) {
      throw new ConfigError(name, `must be at least ${least}, not "${value}"`);
    }
    return bytes;
  }

  /** An address or a name of this machine. */
  host(name: string, fallback: string): string {
    const value = this.text(name) ?? fallback;
    if (isIP(value) !== 0 || HOST_NAME.test(value)) return value;
    throw new ConfigError(name, `must be an IP address or a host name, not "${value}"`);
  }

  /** The text of the file that a variable names. */
  file(name: string): string | undefined {
    const path = this.text(name);
    if (path === undefined) return undefined;
    try {
      return readConfiguredFile(path);
    } catch (error) {
      throw new ConfigError(name, (error as Error).message);
    }
  }

  /** Like {@link size}, but also accepts 0. */
  bytesOrNone(name: string, fallback: number): number {
    return this.text(name) === '0' ? 0 : this.bytes(name, fallback);
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

  /** An absolute URL. The error does not repeat the value, because it may contain a password. */
  url(name: string, protocols: readonly string[]): string | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const url = URL.canParse(value) ? new URL(value) : undefined;
    const isComplete = /^[^/]+:\/\//.test(value);
    if (!url || !isComplete || !protocols.includes(url.protocol.slice(0, -1))) {
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

/** @returns seconds, or `undefined` if `text` is not a duration. A bare number means seconds. */
export function parseDuration(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?$/.exec(text.trim().toLowerCase());
  if (!match) return undefined;
  return Number(match[1]) * (DURATION_UNITS[match[2] ?? 's'] ?? 1);
}

/** @returns bytes, or `undefined` if `text` is not a size. A bare number means bytes. */
export function parseBytes(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)\s*([a-z]*)$/.exec(text.trim().toLowerCase());
  const unit = match && SIZE_UNITS[match[2] || 'b'];
  const bytes = unit ? Math.floor(Number(match[1]) * unit) : Number.NaN;
  return Number.isSafeInteger(bytes) ? bytes : undefined;
}
