import { execFileSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { connect, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer as createTlsServer } from 'node:tls';
import { decode, encode } from 'dns-packet';
import { makeCertificates } from './certificates.js';

/** Runs a program with files of its own at /etc/hosts and /etc/resolv.conf. */
const WITH_OWN_NAMES =
  'mount --bind "$0" /etc/hosts && mount --bind "$1" /etc/resolv.conf && shift && exec "$@"';

/**
 * A company's network on this machine: a private address with servers whose certificates are of a private authority, a
 * name server, and a proxy that requires a password. Needs root.
 */
export class CompanyNetwork {
  /** The file with the authority's certificate. */
  readonly authority: string;
  /** What the name server answers, in turn; it knows no other names. */
  readonly addresses = new Map<string, string[]>();
  /** What clients with the right password asked the proxy for. */
  readonly proxied: string[] = [];
  /** Where the proxy connects for an address that it does not reach as it is. */
  readonly routes = new Map<string, string>();
  private readonly sockets = new Set<Socket>();
  private readonly closers: (() => Promise<unknown> | void)[] = [];

  private constructor(
    private readonly folder: string,
    /** The private address, which is one of this machine's own. */
    readonly address: string,
  ) {
    this.authority = join(folder, 'ca.pem');
  }

  /** @param names the names that the servers' certificate is for */
  static async start(names: readonly string[]): Promise<CompanyNetwork> {
    const folder = await mkdtemp(join(tmpdir(), 'company-'));
    // Test files run beside each other.
    const address = `10.213.${(process.pid >> 8) & 0xff}.${process.pid & 0xff}`;
    const company = new CompanyNetwork(folder, address);
    try {
      await makeCertificates(folder, names);
      execFileSync('ip', ['addr', 'add', `${address}/32`, 'dev', 'lo']);
      company.closers.push(
        () => void execFileSync('ip', ['addr', 'del', `${address}/32`, 'dev', 'lo']),
      );
      await company.startNameServer();
      return company;
    } catch (error) {
      await company.stop();
      throw error;
    }
  }

  /** A command that runs the program after it with this network's name server. */
  get through(): readonly string[] {
    const files = [join(this.folder, 'hosts'), join(this.folder, 'resolv.conf')];
    return ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', WITH_OWN_NAMES, ...files];
  }

  /** Serves TLS at the private address, and connects to a server of loopback. @returns the port */
  async publish(loopbackPort: number, host = this.address): Promise<number> {
    const server = createTlsServer(await this.identity(), (client) => {
      const upstream = this.own(connect({ port: loopbackPort, host: '127.0.0.1' }));
      this.own(client);
      client.pipe(upstream).pipe(client);
      client.once('close', () => upstream.destroy());
      upstream.once('close', () => client.destroy());
    });
    return this.listen(server, host);
  }

  /** An HTTPS server at the private address. @param port default: a free one */
  async serve(handler: RequestListener, host = this.address, port = 0): Promise<number> {
    return this.listen(createHttpsServer(await this.identity(), handler), host, port);
  }

  /** An HTTP proxy for `user` with a password. @returns its address without the password */
  async startProxy(scheme: 'http' | 'https', password: string): Promise<URL> {
    const server =
      scheme === 'http' ? createHttpServer() : createHttpsServer(await this.identity());
    const expected = `Basic ${Buffer.from(`user:${password}`).toString('base64')}`;
    server.on('connect', ({ url = '', headers }, client: Socket, head: Buffer) => {
      this.own(client);
      if (headers['proxy-authorization'] !== expected) {
        client.end('HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n');
        return;
      }
      this.proxied.push(url);
      const { hostname, port } = new URL(`tcp://${url}`);
      const host = this.routes.get(hostname) ?? hostname;
      const upstream = this.own(connect({ host, port: Number(port) }));
      upstream.once('error', () => client.end('HTTP/1.1 502 Bad Gateway\r\n\r\n'));
      upstream.once('connect', () => {
        client.write('HTTP/1.1 200 Connection established\r\n\r\n');
        upstream.write(head);
        client.pipe(upstream).pipe(client);
      });
      client.once('close', () => upstream.destroy());
    });
    const port = await this.listen(server, '127.0.0.1');
    return new URL(`${scheme}://127.0.0.1:${port}`);
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    for (const close of this.closers.toReversed()) await close();
    await rm(this.folder, { recursive: true });
  }

  private async identity() {
    const [key, cert] = await Promise.all(
      ['server-key.pem', 'server-cert.pem'].map((name) => readFile(join(this.folder, name))),
    );
    return { key, cert };
  }

  private async listen(server: Server, host: string, port = 0): Promise<number> {
    server.on('connection', (socket: Socket) => this.own(socket));
    server.on('tlsClientError', () => undefined);
    server.listen(port, host);
    await once(server, 'listening');
    this.closers.push(() => new Promise((closed) => server.close(closed)));
    return (server.address() as AddressInfo).port;
  }

  private own(socket: Socket): Socket {
    this.sockets.add(socket);
    return socket.on('error', () => undefined).once('close', () => this.sockets.delete(socket));
  }

  /** On port 53, so that the system's own settings can name it. */
  private async startNameServer(): Promise<void> {
    const address = this.address.replace(/^10\./, '127.');
    const server = createSocket('udp4');
    server.on('message', (query, from) => {
      const packet = decode(query);
      const [question] = packet.questions ?? [];
      const name = question?.name.toLowerCase() ?? '';
      const known = this.addresses.get(name);
      const isAsked = question?.type === 'A' && known !== undefined;
      const [data = '', ...others] = known ?? [];
      if (isAsked) this.addresses.set(name, [...others, data]);
      const reply = encode({
        type: 'response',
        id: packet.id,
        flags: 0x180 | (known === undefined ? 3 : 0),
        questions: packet.questions,
        answers: isAsked ? [{ type: 'A', name, ttl: 0, data }] : [],
      });
      server.send(reply, from.port, from.address);
    });
    server.bind(53, address);
    await once(server, 'listening');
    this.closers.push(() => new Promise<void>((closed) => server.close(closed)));
    await writeFile(join(this.folder, 'hosts'), '127.0.0.1 localhost\n');
    await writeFile(join(this.folder, 'resolv.conf'), `nameserver ${address}\n`);
  }
}
