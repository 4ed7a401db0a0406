import type { Target } from './egress/connections.js';

/** The relay's name as it reports it. It can be trusted because relays run no code of tenants. */
interface FromRelay {
  relay: string;
}

/**
 * The protocol between a sandbox's relay and the gateway, with one connection for each connection of the sandbox: over a
 * unix socket, or over the network, where the relay has proven before whose it is (see network/network-listener.ts). The relay sends one line of JSON, the gateway answers with one line, and after that the bytes are those
 * of the forwarded connection.
 */
export type EgressRequest = Target & FromRelay;

/** Asks whether a name has an address. The connection ends with the answer. */
export type EgressLookup = { lookup: string } & FromRelay;

/** After the answer, the connection carries HTTP requests to the broker. */
export type BrokerRequest = {
  /** The id of the sandbox. Agents cannot write to the relay's socket, so it proves where a request comes from. */
  broker: string;
} & FromRelay;

/** Keeps the gateway running as long as the connection is open. */
export type EgressHold = { hold: true };

/** After the answer, the connection carries usage, see usage/messages.ts. The value proves that the peer is a worker. */
export type UsageRequest = { usage: string };

/** Asks for the broker's metrics. They are the answer, as JSON, and the connection ends. */
export type StatsRequest = { stats: true };

export type EgressAnswer =
  | { ok: true; found?: boolean; version?: string }
  | { ok: false; kind: 'refused' | 'failed'; message: string };

/** Longer than any host name. A peer that sends more is not a relay. */
export const MAX_LINE_BYTES = 1024;
