import type { Destination } from '../../shared/relay/destinations.js';

/**
 * Between a sandbox's relay and the egress: one connection per connection, over a unix socket. The relay sends one line
 * of JSON, the egress answers with one, and from then on the bytes are the connection's.
 */
export type EgressRequest = Pick<Destination, 'host' | 'port' | 'isGateway'>;

/** Asks for nothing but that the egress stays as long as the connection does. */
export type EgressHold = { hold: true };

export type EgressAnswer =
  { ok: true } | { ok: false; kind: 'refused' | 'failed'; message: string };

/** Longer than any host name; whoever sends more is not a relay. */
export const MAX_LINE_BYTES = 1024;
