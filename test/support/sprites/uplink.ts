import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

/** Clients name the host that they want there: in a header of HTTP, or in the first message of TLS. */
const PORTS = [80, 443];
const MAX_HEAD = 16 * 1024;

/** Passes connections of a sprite on to the hosts that they are for. All of these have the same address in the sprite. */
export class Uplink {
  private readonly servers: Server[] = [];
  private readonly sockets = new Set<Socket>();

  /** @param hosts the hosts that the sprite may reach now */
  constructor(private readonly hosts: () => readonly string[]) {}

  async listen(address: string): Promise<void> {
    for (const port of PORTS) {
      const server = createServer({ allowHalfOpen: true }, (client) => this.accept(client, port));
      this.servers.push(server);
      server.listen(port, address);
      await once(server, 'listening');
    }
  }

  close(): void {
    for (const server of this.servers) server.close();
    for (const socket of this.sockets) socket.destroy();
  }

  private accept(client: Socket, port: number): void {
    this.keep(client);
    let head = Buffer.alloc(0);
    const take = (data: Buffer): void => {
      head = Buffer.concat([head, data]);
      const host = this.hosts().find((name) => isFor(name, head));
      if (host === undefined) {
        if (head.length > MAX_HEAD) client.destroy();
        return;
      }
      client.off('data', take);
      const server = this.keep(connect({ host, port, allowHalfOpen: true }));
      server.write(head);
      client.pipe(server).pipe(client);
      client.once('close', () => server.destroy());
      server.once('close', () => client.destroy());
    };
    client.on('data', take);
  }

  private keep(socket: Socket): Socket {
    this.sockets.add(socket);
    return socket
      .on('error', () => socket.destroy())
      .once('close', () => this.sockets.delete(socket));
  }
}

/** Whether the first bytes of a connection name the host. */
function isFor(host: string, head: Buffer): boolean {
  // The type of the name, 0, and its length in two bytes come before it.
  const inTls = Buffer.concat([Buffer.from([0, 0, host.length]), Buffer.from(host)]);
  if (head.includes(inTls)) return true;
  const [, name = ''] = /^host: *([^\s:]+)/im.exec(head.toString('latin1')) ?? [];
  return name.toLowerCase() === host;
}
