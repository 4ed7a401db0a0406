import type { IncomingMessage } from 'node:http';

/**
 * Hop-by-hop headers (RFC 9110, 7.6.1). Without `upgrade`, no connection switches to a protocol that cannot be read.
 */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'expect',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);
/** Headers that `Connection` cannot remove, because they define a message's length and destination. */
const NEEDED: ReadonlySet<string> = new Set(['host', 'content-length']);

/** The end-to-end headers of a message, names and values alternating. */
export function endToEnd({ rawHeaders }: Pick<IncomingMessage, 'rawHeaders'>): string[] {
  const dropped = new Set(HOP_BY_HOP);
  const pairs = rawHeaders.flatMap((name, i) =>
    i % 2 === 0 ? [[name, rawHeaders[i + 1] ?? ''] as const] : [],
  );
  for (const [name, value] of pairs) {
    if (name.toLowerCase() !== 'connection') continue;
    for (const option of value.toLowerCase().split(',')) {
      if (!NEEDED.has(option.trim())) dropped.add(option.trim());
    }
  }
  return pairs.filter(([name]) => !dropped.has(name.toLowerCase())).flat();
}
