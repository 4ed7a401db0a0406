import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import {
  ALIVE_ENDING,
  gatewaysIn,
  type Line,
  linesOfGateway,
  removeFiles,
} from './journal-files.js';
import type { UsageBatch, UsageEntry } from './usage-entry.js';

const BATCH_ENTRIES = 200;
/** About the size of an entry. */
const ENTRY_BYTES = 350;
const ANSWER_MS = 1000;

/** The entries that killed gateways have left in the folder of journals. */
export class LeftBehind {
  private readonly entries = new Map<string, UsageEntry[]>();

  /** @param own the id of this gateway */
  constructor(
    private readonly folder: string,
    private readonly own: string,
  ) {}

  get isEmpty(): boolean {
    return this.entries.size === 0;
  }

  /** About how many bytes they have in files. */
  get size(): number {
    return ENTRY_BYTES * [...this.entries.values()].reduce((sum, { length }) => sum + length, 0);
  }

  /** Looks for gateways that were killed since. */
  async adopt(): Promise<void> {
    for (const gateway of gatewaysIn(this.folder)) {
      if (gateway === this.own || this.entries.has(gateway)) continue;
      if (await isAlive(this.folder, gateway)) continue;
      const entries = lastOfEach(linesOfGateway(this.folder, gateway));
      if (entries.length > 0) this.entries.set(gateway, entries);
      else removeFiles(this.folder, gateway);
    }
  }

  /** The next entries; the same ones again until they are acknowledged. `undefined` if there are none. */
  next(): UsageBatch | undefined {
    const [first] = this.entries;
    if (first === undefined) return undefined;
    const [gateway, entries] = first;
    const some = entries.slice(0, BATCH_ENTRIES);
    return {
      entries: some,
      acknowledge: () => {
        if (entries[0] === some[0]) entries.splice(0, some.length);
        if (entries.length > 0) return;
        this.entries.delete(gateway);
        removeFiles(this.folder, gateway);
      },
    };
  }
}

/** Lets other gateways see that this one is alive, until the server is closed. */
export function showAlive(folder: string, gateway: string): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy()).unref();
    server.once('error', reject);
    server.listen(join(folder, gateway + ALIVE_ENDING), () => resolve(server));
  });
}

/** The entries of a killed gateway. Requests that it has not finished count with what is known of them. */
function lastOfEach(lines: readonly Line[]): UsageEntry[] {
  const entries = new Map<string, UsageEntry>();
  for (const { open, ...entry } of lines) {
    if (open !== true || !entries.has(entry.id)) entries.set(entry.id, entry);
  }
  return [...entries.values()];
}

/** Whether a gateway listens on its socket. An unclear answer counts as alive. */
function isAlive(folder: string, gateway: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(join(folder, gateway + ALIVE_ENDING));
    const end = (answer: boolean): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(ANSWER_MS, () => end(true));
    socket.once('connect', () => end(true));
    socket.once('error', ({ code }: NodeJS.ErrnoException) =>
      end(code !== 'ECONNREFUSED' && code !== 'ENOENT'),
    );
  });
}
