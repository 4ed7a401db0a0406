import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { RequestListener } from 'node:http';
import type { AddressInfo, Server, Socket } from 'node:net';

export interface TestServer {
  port: number;
  /** Connections that are open now. */
  open: Set<Socket>;
  close(): Promise<void>;
}

async function listen(server: Server, host = '127.0.0.1'): Promise<TestServer> {
  const open = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.on('error', () => undefined).on('close', () => open.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  return {
    port: (server.address() as AddressInfo).port,
    open,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of open) socket.destroy();
      }),
  };
}

export const startTcp = (onConnection: (socket: Socket) => void): Promise<TestServer> =>
  listen(createServer({ allowHalfOpen: true }, onConnection));

export const startHttp = (handler: RequestListener): Promise<TestServer> =>
  listen(createHttpServer(handler));

/** With a certificate for nobody: clients have to be told not to mind. */
export async function startHttps(
  handler: RequestListener,
): Promise<TestServer & { key: Buffer; certificate: Buffer }> {
  const folder = await mkdtemp(join(tmpdir(), 'relay-tls-'));
  const [key, cert] = [join(folder, 'key'), join(folder, 'cert')];
  const request =
    'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=test';
  await promisify(execFile)('openssl', [...request.split(' '), '-keyout', key, '-out', cert]);
  const options = { key: await readFile(key), cert: await readFile(cert) };
  await rm(folder, { recursive: true });
  const server = await listen(createHttpsServer(options, handler));
  return { ...server, key: options.key, certificate: options.cert };
}
