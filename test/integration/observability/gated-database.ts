import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';

/** A way to a database that can be closed: connections break, and new ones break at once. */
export interface GatedDatabase {
  /** The database's URL by this way. */
  readonly url: string;
  shut(): void;
  open(): void;
  stop(): Promise<void>;
}

/** @param databaseUrl by a Unix socket, as the test run's own PostgreSQL has it */
export async function gate(databaseUrl: string): Promise<GatedDatabase> {
  const direct = new URL(databaseUrl);
  const socketPath = join(direct.searchParams.get('host') ?? '', `.s.PGSQL.${direct.port}`);
  const sockets = new Set<Socket>();
  let isOpen = true;
  const server = createServer({ noDelay: true }, (client) => {
    if (!isOpen) {
      client.destroy();
      return;
    }
    const upstream = connect(socketPath);
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(one);
      one.on('error', () => undefined);
      one.on('close', () => {
        sockets.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const gated = new URL(databaseUrl);
  gated.hostname = '127.0.0.1';
  gated.port = String((server.address() as AddressInfo).port);
  gated.search = '';
  const breakAll = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: gated.href,
    shut: () => {
      isOpen = false;
      breakAll();
    },
    open: () => {
      isOpen = true;
    },
    stop: async () => {
      server.close();
      breakAll();
      await once(server, 'close');
    },
  };
}
