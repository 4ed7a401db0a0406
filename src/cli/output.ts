import type { ExitCode } from './exit-codes.js';

/** What a command has to say: to programs (one JSON object) and to people. */
export interface CommandOutput {
  json: object;
  text: string;
  /** Without one, the command has done what it was asked to. */
  exitCode?: ExitCode;
}

/** Left-aligned columns, two spaces apart, with a heading; `null` is shown as `-`. */
export function table(
  heading: readonly string[],
  rows: readonly (readonly (string | number | null)[])[],
): string {
  const lines = [heading, ...rows.map((row) => row.map((cell) => printable(cell)))];
  const widths = heading.map((_title, column) =>
    Math.max(...lines.map((line) => (line[column] ?? '').length)),
  );
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** Milliseconds as people read them: `42 ms`, `1.2 s`, `3 min 5 s`, `2 h 10 min`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.round(ms / 1000);
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Lines of `name  value`, the values under each other. */
export function fields(pairs: readonly (readonly [string, string | number | null])[]): string {
  const width = Math.max(...pairs.map(([name]) => name.length));
  return pairs.map(([name, value]) => `${name.padEnd(width)}  ${printable(value)}`).join('\n');
}

/** A name may hold anything; a terminal must not take it for commands. */
function printable(cell: string | number | null): string {
  if (cell === null || cell === '') return '-';
  return String(cell).replaceAll(/\p{Cc}/gu, '\uFFFD');
}
