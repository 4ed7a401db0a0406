import { createSocket, type Socket } from 'node:dgram';
import { createServer, type Server } from 'node:net';
import type { ListenerSpec } from './listener-plan.js';

/** First and count of 127.64.0.0/10, without its network address. */
const FIRST = ((127 << 24) | (64 << 16)) + 1;
const COUNT = (1 << 22) - 2;

/**
 * Assigns addresses of 127.64.0.0/10 to names, and finds the names again. A name keeps its address while it is in the
 * table. The table is bounded and forgets the least recently used name. Its address is reused only after all others, so
 * that a client with an old answer gets a reset instead of another host.
 */
export class SyntheticAddresses {
  private readonly addressByName = new Map<string, string>();
  private readonly nameByAddress = new Map<string, string>();
  private readonly pinned = new Set<string>();
  private next = 0;

  constructor(private readonly capacity = 16_384) {}

  /** The name's address; assigns one if it has none. */
  addressOf(name: string): string {
    const known = this.addressByName.get(name);
    if (known !== undefined) {
      this.touch(name, known);
      return known;
    }
    if (this.addressByName.size - this.pinned.size >= this.capacity) this.forgetOldest();
    let address: string;
    do {
      address = dotted(FIRST + (this.next++ % COUNT));
    } while (this.nameByAddress.has(address));
    this.addressByName.set(name, address);
    this.nameByAddress.set(address, name);
    return address;
  }

  /** Like {@link addressOf}, but the name is never forgotten. */
  pin(name: string): string {
    const address = this.addressOf(name);
    this.pinned.add(name);
    return address;
  }

  /** The name of this address, if it is still in the table. */
  nameOf(address: string): string | undefined {
    const name = this.nameByAddress.get(address);
    if (name !== undefined) this.touch(name, address);
    return name;
  }

  /** Maps keep insertion order, so the first key is the least recently used. */
  private touch(name: string, address: string): void {
    this.addressByName.delete(name);
    this.addressByName.set(name, address);
  }

  private forgetOldest(): void {
    for (const [name, address] of this.addressByName) {
      if (this.pinned.has(name)) continue;
      this.addressByName.delete(name);
      this.nameByAddress.delete(address);
      return;
    }
  }
}

function dotted(value: number): string {
  return [value >>> 24, (value >>> 16) & 0xff, (value >>> 8) & 0xff, value & 0xff].join('.');
}

/** A listening socket of a plan. */
export interface BoundListener {
  spec: ListenerSpec;
  socket: Server | Socket;
}

/** A socket by its descriptor, for passing it to another process or thread. */
export interface ListenerDescriptor {
  spec: ListenerSpec;
  fd: number;
}

/** A socket that listens in a sandbox's namespace and was passed to this process. */
export interface AdoptedListener {
  spec: ListenerSpec;
  handle: NativeHandle;
}

/** Node's internal handle of a descriptor. */
export interface NativeHandle {
  readonly fd: number;
  close(): void;
}

function bind(spec: ListenerSpec): Promise<Server | Socket> {
  return new Promise((resolve, reject) => {
    if (spec.role === 'dns') {
      const socket = createSocket('udp4');
      socket.once('error', reject);
      socket.bind({ address: spec.address, port: spec.port, exclusive: true }, () => {
        resolve(socket);
      });
    } else {
      const server = createServer();
      server.once('error', reject);
      server.listen({ host: spec.address, port: spec.port, exclusive: true, backlog: 511 }, () => {
        resolve(server);
      });
    }
  });
}

/**
 * Creates the sockets of a plan in this process's network namespace; `undefined` for an optional one that cannot be
 * bound.
 * @throws Error naming the socket that could not be bound
 */
export async function bindListeners(
  plan: readonly ListenerSpec[],
): Promise<(BoundListener | undefined)[]> {
  return Promise.all(
    plan.map(async (spec) => {
      try {
        return { spec, socket: await bind(spec) };
      } catch (error) {
        if (spec.optional) return undefined;
        const protocol = spec.role === 'dns' ? 'udp' : 'tcp';
        const cause = (error as NodeJS.ErrnoException).code ?? String(error);
        throw new Error(
          `cannot listen on ${protocol} ${spec.address} port ${spec.port}: ${cause}`,
          { cause: error },
        );
      }
    }),
  );
}
