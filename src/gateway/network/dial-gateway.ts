import { once } from 'node:events';
import { connect, isIP, type Socket } from 'node:net';
import { connect as connectWithTls } from 'node:tls';
import { DialError, reset } from '../egress/connections.js';
import { readLine } from '../read-line.js';
import { trusting } from './trust.js';

/** The protocol in the `Upgrade` header. After the upgrade, it is the one of protocol.ts. */
export const UPGRADE_PROTOCOL = 'agent-session-gateway';
export const CONNECT_PATH = '/connect';

const CONNECT_MS = 10_000;
const KEEPALIVE_MS = 30_000;
const MAX_HEAD_LINES = 64;

/** A gateway on the network. */
export interface NetworkGateway {
  /** `http://` or `https://`. Everything but the host and port is ignored. */
  url: string;
  /** The address to connect to, instead of the one that the name in the URL resolves to. */
  address?: string | undefined;
  /** Identifies the sandbox, see `sandboxIdentity`. Without it, only usage can be read. */
  identity?: string | undefined;
  /** Certificates to trust besides the system's, as PEM. */
  certificates?: readonly string[] | undefined;
}

/**
 * Connects to a gateway on the network, so that the protocol of protocol.ts follows. The connection begins as an HTTP
 * request with an upgrade, which load balancers forward.
 * @throws DialError `refused` if the gateway does not accept the identity; Error for anything that may change
 */
export async function dialGateway(gateway: NetworkGateway, signal: AbortSignal): Promise<Socket> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_MS)]);
  limit.throwIfAborted();
  const url = new URL(gateway.url);
  const socket = open(url, gateway);
  const abandon = (): void => void socket.destroy(limit.reason as Error);
  limit.addEventListener('abort', abandon, { once: true });
  try {
    await once(socket, url.protocol === 'https:' ? 'secureConnect' : 'connect');
    socket.on('error', () => undefined);
    socket.write(head(url, gateway.identity));
    const status = await readStatus(socket);
    if (status === 401)
      throw new DialError('refused', 'the gateway does not accept the identity of this sandbox');
    if (status !== 101) throw new Error(`it answered with status ${status}`);
    return socket;
  } catch (error) {
    reset(socket);
    throw error;
  } finally {
    limit.removeEventListener('abort', abandon);
  }
}

function open(url: URL, { address, certificates }: NetworkGateway): Socket {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const isSecure = url.protocol === 'https:';
  const options = {
    host: address ?? host,
    port: Number(url.port) || (isSecure ? 443 : 80),
    allowHalfOpen: true,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEPALIVE_MS,
  };
  if (!isSecure) return connect(options);
  return connectWithTls({
    ...options,
    ...(isIP(host) === 0 && { servername: host }),
    secureContext: trusting(certificates),
    ALPNProtocols: ['http/1.1'],
  });
}

function head({ host }: URL, identity: string | undefined): string {
  return [
    `GET ${CONNECT_PATH} HTTP/1.1`,
    `Host: ${host}`,
    'Connection: Upgrade',
    `Upgrade: ${UPGRADE_PROTOCOL}`,
    ...(identity === undefined ? [] : [`Authorization: Bearer ${identity}`]),
    '\r\n',
  ].join('\r\n');
}

/** Reads the head of the response. What follows it stays in the socket. */
async function readStatus(socket: Socket): Promise<number> {
  const first = await readLine(socket, CONNECT_MS);
  for (let lines = 0; lines < MAX_HEAD_LINES; lines += 1) {
    if ((await readLine(socket, CONNECT_MS)).trim() !== '') continue;
    return Number(/^HTTP\/1\.1 (\d{3})\b/.exec(first)?.[1]);
  }
  throw new Error('its answer has too many headers');
}
