/** What a command has to say: to programs (one JSON object) and to people. */
export interface CommandOutput {
  json: object;
  text: string;
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

/** A name may hold anything; a terminal must not take it for commands. */
function printable(cell: string | number | null): string {
  if (cell === null || cell === '') return '-';
  return String(cell).replaceAll(/\p{Cc}/gu, '\uFFFD');
}
