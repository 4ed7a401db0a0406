/** First and count of 127.64.0.0/10, without its network address. */
const FIRST = ((127 << 24) | (64 << 16)) + 1;
const COUNT = (1 << 22) - 2;

/**
 * Gives names addresses of 127.64.0.0/10 and finds the names again. A name keeps its address while it is in the table.
 * Holds a bounded number of names and forgets the least recently used one; its address is given out again only after
 * all others were, so that a client with an old answer meets a reset, not another host.
 */
export class SyntheticAddresses {
  private readonly addressByName = new Map<string, string>();
  private readonly nameByAddress = new Map<string, string>();
  private readonly pinned = new Set<string>();
  private next = 0;

  constructor(private readonly capacity = 16_384) {}

  /** The name's address, a new one if it has none. */
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

  /** Like {@link addressOf}, and never forgotten. */
  pin(name: string): string {
    const address = this.addressOf(name);
    this.pinned.add(name);
    return address;
  }

  /** The name that was given this address, if it is still known. */
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
