/** Formats a table like prettier does: columns are as wide as their widest cell. */
export function table(head, body) {
  const all = [head, ...body].map((row) => row.map((cell) => cell.replaceAll('|', '\\|')));
  const widths = head.map((_, at) => Math.max(3, ...all.map((row) => row[at].length)));
  const line = (row) => `| ${row.map((cell, at) => cell.padEnd(widths[at])).join(' | ')} |`;
  return [
    line(all[0]),
    line(widths.map((width) => '-'.repeat(width))),
    ...all.slice(1).map(line),
  ].join('\n');
}
