import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { decode, encode, type Packet } from 'dns-packet';

const REFUSED = 5;
const NO_SUCH_NAME = 3;
const PORT = 53;
/** Stands for the host, which has another address for each sprite. */
export const HOST_ITSELF = 'host';

/** One rule of a network policy. */
export interface Rule {
  domain?: string;
  action?: 'allow' | 'deny';
  include?: string;
}

/** Whether a policy allows a name: the most specific rule counts; without rules everything is allowed. */
export function allows(rules: readonly Rule[], name: string): boolean {
  if (rules.length === 0) return true;
  const matching = rules.flatMap(({ domain, action }) => {
    if (domain === undefined || action === undefined) return [];
    if (domain === name) return [{ action, weight: 1000 }];
    if (domain === '*') return [{ action, weight: 0 }];
    const suffix = domain.startsWith('*.') ? domain.slice(1) : undefined;
    return suffix !== undefined && name.endsWith(suffix) ? [{ action, weight: suffix.length }] : [];
  });
  return matching.toSorted((a, b) => b.weight - a.weight)[0]?.action === 'allow';
}

/**
 * The name servers that enforce sprites' network policies: one address of this host for each sprite. A name that the
 * policy denies is refused; others have the addresses that a test gave them.
 */
export class NameServer {
  /** The addresses of names. */
  readonly addresses = new Map<string, string>();
  private readonly sockets = new Map<string, Socket>();

  /** Answers a sprite at its address of the host, which exists by now. */
  async serve(sprite: string, host: string, rules: () => readonly Rule[]): Promise<void> {
    if (this.sockets.has(sprite)) return;
    const socket = createSocket('udp4');
    this.sockets.set(sprite, socket);
    socket.on('error', () => undefined);
    socket.on('message', (message, { port, address }) => {
      const reply = this.reply(decode(message), rules(), host);
      socket.send(reply, port, address, () => undefined);
    });
    socket.bind(PORT, host);
    await once(socket, 'listening');
  }

  forget(sprite: string): void {
    this.sockets.get(sprite)?.close();
    this.sockets.delete(sprite);
  }

  async stop(): Promise<void> {
    const closed = [...this.sockets.values()].map((socket) => once(socket, 'close'));
    for (const sprite of [...this.sockets.keys()]) this.forget(sprite);
    await Promise.all(closed);
  }

  private reply(query: Packet, rules: readonly Rule[], host: string): Buffer {
    const [question] = query.questions ?? [];
    const name = (question?.name ?? '').toLowerCase();
    const known = this.addresses.get(name);
    const address = known === HOST_ITSELF ? host : known;
    const allowed = allows(rules, name);
    const code = !allowed ? REFUSED : address === undefined ? NO_SUCH_NAME : 0;
    return encode({
      type: 'response',
      id: query.id ?? 0,
      flags: code,
      questions: query.questions ?? [],
      answers:
        code === 0 && question?.type === 'A' && address !== undefined
          ? [{ type: 'A', name, ttl: 1, data: address }]
          : [],
    });
  }
}
