import type { Schemas } from '../api/client.js';

/** `4.2 s`, `3 min 20 s`, `2 h 05 min`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${pad(Math.floor(seconds % 60))} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48
    ? `${hours} h ${pad(minutes % 60)} min`
    : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const pad = (value: number): string => String(value).padStart(2, '0');

const RELATIVE = new Intl.RelativeTimeFormat('en', { numeric: 'always', style: 'short' });
const STEPS: readonly [Intl.RelativeTimeFormatUnit, number][] = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
];

/** `3 min. ago`. */
export function ago(time: number, now: number): string {
  const past = now - time;
  for (const [unit, size] of STEPS) {
    if (past >= size) return RELATIVE.format(-Math.floor(past / size), unit);
  }
  return past < 5_000 ? 'now' : RELATIVE.format(-Math.floor(past / 1000), 'second');
}

const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'long' });
/** In the viewer's time zone, to the second. */
export const exact = (time: number): string => EXACT.format(time);

/** `1.4 KiB`. */
export function bytes(count: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

/** `12,345`. */
export const count = (value: number): string => value.toLocaleString('en');

/** `12.3k` for numbers that only give an impression. */
export const rough = (value: number): string =>
  Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 }).format(value);

/** All tokens of a session or turn, cached ones included, as budgets count them. */
export const allTokens = (usage: Schemas['Usage']): number =>
  usage.input_tokens +
  usage.output_tokens +
  usage.cache_read_input_tokens +
  usage.cache_creation_input_tokens;

/** `$0.0042`; `null` where the price of a model is not known. */
export function cost(usd: number | null): string {
  if (usd === null) return 'price not known';
  return usd !== 0 && usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;
}

/** The first part of a UUID, enough to tell sessions apart by eye. */
export const shortId = (id: string): string => id.slice(0, 8);
