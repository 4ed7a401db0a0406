import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from './sessions.js';

/** A real nginx in front of a service. */
export interface Nginx<Site extends string> {
  /** The address of each site. */
  readonly urls: Record<Site, string>;
  stop(): Promise<void>;
}

/**
 * Starts an nginx that passes everything on, a site for each set of directives, which hold for streams.
 * @param upstreamOf the address that a site passes requests to
 */
export async function startNginx<Site extends string>(
  upstreamOf: (site: Site) => string,
  sites: Record<Site, string>,
): Promise<Nginx<Site>> {
  const names = Object.keys(sites) as Site[];
  const ports = await freePorts(names.length);
  const folder = await mkdtemp(join(tmpdir(), 'nginx-'));
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((kind) => `${kind}_temp_path ${folder};`)
    .join(' ');
  const servers = names.map(
    (name, index) =>
      `server { listen 127.0.0.1:${ports[index]}; location / { proxy_pass ${upstreamOf(name)}; }
       location ~ /stream$ { proxy_pass ${upstreamOf(name)}; ${sites[name]} } }`,
  );
  await writeFile(
    join(folder, 'nginx.conf'),
    `daemon off; master_process off; pid ${folder}/pid; error_log stderr;
     events { worker_connections 256; }
     http { access_log off; ${temporary} ${servers.join('\n')} }`,
  );
  const child = spawn('nginx', ['-e', 'stderr', '-p', folder, '-c', join(folder, 'nginx.conf')], {
    env: { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin:/sbin` },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  const exited = new Promise((resolve) => child.once('close', resolve));
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await exited;
    await rm(folder, { recursive: true, force: true });
  };
  await eventually(() => {
    if (child.exitCode !== null) throw new Error(`nginx did not start: ${said}`);
    return answers(ports.at(-1) ?? 0);
  }, 'nginx to listen').catch(async (error: unknown) => {
    await stop();
    throw error;
  });
  const urls = names.map((name, index) => [name, `http://127.0.0.1:${ports[index]}`] as const);
  return { urls: Object.fromEntries(urls) as Record<Site, string>, stop };
}

/** Ports that nobody listens on at this moment; nginx cannot say which one it took. */
async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = createServer();
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      return server;
    }),
  );
  const ports = servers.map((server) => (server.address() as AddressInfo).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => resolve(true));
    socket.once('error', () => resolve(false));
    socket.once('close', () => socket.destroy());
    socket.once('connect', () => socket.destroy());
  });
}
