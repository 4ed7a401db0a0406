/**
 * PostgreSQL's text of a `timestamptz` in a UTC session (`2026-01-31 12:00:00.5+00`) → the form that clients see:
 * ISO 8601, six digits of fraction, `+00:00`. A Date would lose the microseconds.
 */
export function formatTimestamp(text: string): string {
  const match = /^(\d{4,}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00$/.exec(text);
  if (!match) throw new Error(`Not a timestamp of a UTC session: ${text}`);
  return `${match[1]}T${match[2]}.${(match[3] ?? '').padEnd(6, '0')}+00:00`;
}
