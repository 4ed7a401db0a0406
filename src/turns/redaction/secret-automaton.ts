/** Set in a label: the node is not the first child of the node before it. */
const CHAIN_START = 0x100;
/** Set in a label: the node has children besides the node after it. */
const HAS_BRANCHES = 0x200;
const BYTE_AND_START = 0x1ff;

/** Consecutive nodes, each the first child of the previous one. */
interface Chain {
  start: number;
  /** The number of the first node. */
  depth: number;
  parent: number;
}

/**
 * An Aho-Corasick automaton over bytes: finds any of a set of patterns in time linear in the text, whatever the patterns
 * are (at most two steps a byte on average), and takes 10 bytes of memory for each byte of the patterns.
 *
 * Nodes of the trie are numbered so that a node's first child is the next number: without branches, a pattern needs no
 * table of children. Other children are in one map, of which each pattern adds at most one entry.
 */
export class SecretAutomaton {
  /** Children of the root by byte; 0 for none. */
  readonly root = new Uint32Array(256);
  /** The byte that leads to a node, with the two flags above. */
  label: Uint16Array;
  /** The node of the longest proper suffix that has children. */
  fail = new Uint32Array(0);
  /** The length of the longest pattern that ends at a node; 0 for none. */
  matched = new Uint32Array(0);
  /** Children that are not the first, by `node * 256 + byte`. */
  readonly branches = new Map<number, number>();
  private nodes = 1;
  /** Sorted by their first nodes. */
  private readonly chains: Chain[] = [];
  private readonly ends: [node: number, length: number][] = [];

  private constructor(private readonly patterns: readonly Buffer[]) {
    const bytes = patterns.reduce((sum, pattern) => sum + pattern.length, 0);
    this.label = new Uint16Array(bytes + 2);
  }

  /**
   * Builds the automaton in slices.
   * @param sliceBytes yields to other work after about this many bytes of patterns
   */
  static *build(
    patterns: readonly Buffer[],
    sliceBytes: number,
  ): Generator<undefined, SecretAutomaton, undefined> {
    const automaton = new SecretAutomaton(patterns);
    yield* automaton.insertAll(sliceBytes);
    yield* automaton.linkAll(sliceBytes);
    return automaton;
  }

  get isEmpty(): boolean {
    return this.nodes === 1;
  }

  /** How many bytes of the text so far may be the beginning of a pattern that has not ended, in this state. */
  openBytes(state: number): number {
    const node = this.isLeaf(state) ? (this.fail[state] ?? 0) : state;
    if (node === 0) return 0;
    let low = 0;
    for (let high = this.chains.length; high - low > 1;) {
      const middle = (low + high) >>> 1;
      if ((this.chains[middle]?.start ?? 0) <= node) low = middle;
      else high = middle;
    }
    const { start, depth } = this.chains[low] as Chain;
    return depth + node - start;
  }

  /** The node for a byte after a node; 0 for none. */
  private child(node: number, byte: number): number {
    if (node === 0) return this.root[byte] ?? 0;
    if (((this.label[node + 1] ?? 0) & BYTE_AND_START) === byte) return node + 1;
    if (((this.label[node] ?? 0) & HAS_BRANCHES) === 0) return 0;
    return this.branches.get(node * 256 + byte) ?? 0;
  }

  private isLeaf(node: number): boolean {
    const endsChain = ((this.label[node + 1] ?? 0) & CHAIN_START) !== 0;
    return node !== 0 && endsChain && ((this.label[node] ?? 0) & HAS_BRANCHES) === 0;
  }

  private *insertAll(sliceBytes: number): Generator<undefined, void, undefined> {
    let sinceYield = 0;
    for (const pattern of this.patterns) {
      this.insert(pattern);
      sinceYield += pattern.length;
      if (sinceYield >= sliceBytes) {
        sinceYield = 0;
        yield;
      }
    }
    this.label = this.label.slice(0, this.nodes + 1);
    this.label[this.nodes] = CHAIN_START;
    this.fail = new Uint32Array(this.nodes);
    this.matched = new Uint32Array(this.nodes);
    for (const [node, length] of this.ends) this.matched[node] = length;
    this.ends.length = 0;
  }

  private insert(pattern: Buffer): void {
    // A child that does not exist yet must not be mistaken for one that is reached by a zero byte.
    this.label[this.nodes] = CHAIN_START;
    let node = 0;
    let known = 0;
    for (; known < pattern.length; known += 1) {
      const next = this.child(node, pattern[known] ?? 0);
      if (next === 0) break;
      node = next;
    }
    if (known < pattern.length) {
      const byte = pattern[known] ?? 0;
      const continues = node !== 0 && node === this.nodes - 1;
      if (!continues) {
        this.chains.push({ start: this.nodes, depth: known + 1, parent: node });
        if (node === 0) this.root[byte] = this.nodes;
        else {
          this.branches.set(node * 256 + byte, this.nodes);
          this.label[node] = (this.label[node] ?? 0) | HAS_BRANCHES;
        }
      }
      this.label[this.nodes] = continues ? byte : byte | CHAIN_START;
      for (let at = known + 1; at < pattern.length; at += 1) {
        this.label[this.nodes + at - known] = pattern[at] ?? 0;
      }
      this.nodes += pattern.length - known;
      node = this.nodes - 1;
    }
    this.ends.push([node, pattern.length]);
  }

  /** Level by level, because the suffixes of a node are nodes of lower levels. */
  private *linkAll(sliceBytes: number): Generator<undefined, void, undefined> {
    const waiting = this.chains
      .map((chain, index) => ({
        ...chain,
        end: this.chains[index + 1]?.start ?? this.nodes,
      }))
      .toSorted((a, b) => b.depth - a.depth);
    let active: typeof waiting = [];
    let sinceYield = 0;
    for (let depth = 1; active.length > 0 || waiting.length > 0; depth += 1) {
      while (waiting.at(-1)?.depth === depth) active.push(waiting.pop() as (typeof waiting)[0]);
      let ended = false;
      for (const chain of active) {
        const node = chain.start + depth - chain.depth;
        this.link(node, node === chain.start ? chain.parent : node - 1);
        ended ||= node + 1 === chain.end;
      }
      if (ended)
        active = active.filter(({ start, end, ...chain }) => start + depth + 1 - chain.depth < end);
      sinceYield += active.length + 1;
      if (sinceYield >= sliceBytes) {
        sinceYield = 0;
        yield;
      }
    }
  }

  private link(node: number, parent: number): void {
    const byte = (this.label[node] ?? 0) & 0xff;
    let suffix = 0;
    for (let from = parent; from !== 0 && suffix === 0;) {
      from = this.fail[from] ?? 0;
      suffix = this.child(from, byte);
    }
    if (this.matched[node] === 0) this.matched[node] = this.matched[suffix] ?? 0;
    this.fail[node] = this.isLeaf(suffix) ? (this.fail[suffix] ?? 0) : suffix;
  }
}

/** A longer region of overlapping secrets is released in parts. Bytes. */
const MAX_REGION = 64 * 1024;

/** A region of the text with one secret, or with several that overlap. Positions count from the stream's beginning. */
export interface Region {
  start: number;
  end: number;
}

/**
 * Finds secrets in a stream of bytes that arrives in pieces. Looks at each byte once: a partial match at the end of a
 * piece is a state of the automaton.
 */
export class SecretScanner {
  private state = 0;
  private position = 0;
  /** The regions found so far, in order; those before `head` have been released. */
  private regions: Region[] = [];
  private head = 0;

  /**
   * @param released bytes before this position were released earlier; they are only scanned for secrets that begin
   *   there.
   */
  constructor(
    private readonly automaton: SecretAutomaton,
    private released = 0,
  ) {}

  /** The start of the longest partial match at the end of the scanned bytes; their end if there is none. */
  get open(): number {
    return this.position - this.automaton.openBytes(this.state);
  }

  /** Scans the next bytes. */
  scan(bytes: Uint8Array): void {
    const { automaton, position } = this;
    this.position += bytes.length;
    if (automaton.isEmpty) return;
    const { root, label, fail, matched, branches } = automaton;
    let { state } = this;
    for (let at = 0; at < bytes.length; at += 1) {
      const byte = bytes[at] as number;
      for (;;) {
        if (state === 0) {
          state = root[byte] as number;
          break;
        }
        if (((label[state + 1] as number) & BYTE_AND_START) === byte) {
          state += 1;
          break;
        }
        const branch =
          ((label[state] as number) & HAS_BRANCHES) === 0
            ? undefined
            : branches.get(state * 256 + byte);
        if (branch !== undefined) {
          state = branch;
          break;
        }
        state = fail[state] as number;
      }
      const length = matched[state] as number;
      if (length !== 0) this.found(position + at + 1 - length, position + at + 1);
    }
    this.state = state;
  }

  /**
   * The position up to which it is certain which bytes are secrets. A secret that overlaps with a partial match is not
   * certain, because the two may become one region.
   */
  settled(): number {
    const { open } = this;
    const region = this.regionAround(open);
    if (region === undefined) return open;
    return this.position - region.start > MAX_REGION ? region.end : region.start;
  }

  /** Releases the bytes before a position, and returns the regions in them. */
  release(upTo: number): Region[] {
    const from = this.head;
    while (this.head < this.regions.length && (this.regions[this.head] as Region).start < upTo) {
      this.head += 1;
    }
    const regions = this.regions.slice(from, this.head);
    if (this.head * 2 > this.regions.length) {
      this.regions = this.regions.slice(this.head);
      this.head = 0;
    }
    this.released = upTo;
    return regions;
  }

  private found(matchStart: number, end: number): void {
    let start = Math.max(matchStart, this.released);
    if (start >= end) return;
    while (this.regions.length > this.head) {
      const last = this.regions.at(-1) as Region;
      if (start >= last.end) break;
      if (start >= last.start) {
        last.end = end;
        return;
      }
      start = Math.min(start, last.start);
      this.regions.pop();
    }
    this.regions.push({ start, end });
  }

  /** The region that begins before a position and ends after it. */
  private regionAround(position: number): Region | undefined {
    let low = this.head;
    for (let high = this.regions.length; low < high;) {
      const middle = (low + high) >>> 1;
      if ((this.regions[middle] as Region).end <= position) low = middle + 1;
      else high = middle;
    }
    const region = this.regions[low];
    return region !== undefined && region.start < position ? region : undefined;
  }
}
