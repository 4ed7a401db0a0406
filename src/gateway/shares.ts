import type { Socket } from 'node:net';
import { reset } from './egress/connections.js';

/** The limits of the egress for relays. */
export interface EgressLimits {
  /** Connections of one relay. */
  each: number;
  /** Connections of all relays. */
  all: number;
  /** Buffered bytes of all relays. */
  waitingBytes: number;
}

/**
 * A relay allows its sandbox 256 connections and 32 DNS queries at once. The egress has 512 MiB of memory and a small
 * heap.
 */
export const EGRESS_LIMITS: EgressLimits = { each: 320, all: 2000, waitingBytes: 192 * 2 ** 20 };

/** Client connections with their upstream connection, once there is one. */
type Held = Map<Socket, Socket | undefined>;

/**
 * Divides the egress among relays. If connections or memory run short, closes connections of the relay with the most.
 */
export class EgressShares {
  private readonly relays = new Map<string, Held>();

  constructor(private readonly limits: EgressLimits) {}

  /** Counts a connection until it closes. @returns `false` if its relay has used up its share */
  admit(relay: string, client: Socket): boolean {
    const own = this.relays.get(relay) ?? new Map<Socket, undefined>();
    if (own.size >= this.limits.each) return false;
    const held = [...this.relays.values()];
    if (sum(held.map(({ size }) => size)) >= this.limits.all) {
      const largest = mostOf(held, ({ size }) => size);
      if (largest === undefined || own.size + 1 >= largest.size) return false;
      close(largest, [...largest.keys()].slice(-1));
    }
    this.relays.set(relay, own.set(client, undefined));
    client.once('close', () => {
      own.delete(client);
      if (own.size === 0 && this.relays.get(relay) === own) this.relays.delete(relay);
    });
    return true;
  }

  /** Records the upstream of an admitted connection. */
  connected(relay: string, client: Socket, upstream: Socket): void {
    const own = this.relays.get(relay);
    if (own?.has(client)) own.set(client, upstream);
  }

  /** If too many bytes are buffered, closes the connections of the relay with the most. */
  relieve(): void {
    const held = [...this.relays.values()];
    if (sum(held.map(waiting)) <= this.limits.waitingBytes) return;
    const largest = mostOf(held, waiting);
    if (largest !== undefined) close(largest, [...largest.keys()]);
  }
}

function close(held: Held, clients: readonly Socket[]): void {
  for (const client of clients) {
    held.delete(client);
    reset(client);
  }
}

function waiting(held: Held): number {
  return sum(
    [...held].flatMap((pair) =>
      pair.map((socket) => (socket?.readableLength ?? 0) + (socket?.writableLength ?? 0)),
    ),
  );
}

function mostOf(held: readonly Held[], measure: (held: Held) => number): Held | undefined {
  return held.toSorted((a, b) => measure(b) - measure(a))[0];
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((a, b) => a + b, 0);
}
