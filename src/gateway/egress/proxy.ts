import { request as sendRequest } from 'node:http';
import { connect, isIP, isIPv6, type Socket } from 'node:net';
import { connect as connectWithTls } from 'node:tls';
import type { OutboundProxy } from '../../common/egress-network.js';

const PROXY_AUTHENTICATION_REQUIRED = 407;
const KEEPALIVE_MS = 60_000;

/** The proxy did not connect. The message never has its password. */
export class ProxyError extends Error {
  override readonly name = 'ProxyError';

  constructor(
    message: string,
    /** Whether the proxy answered that it does not permit the connection, rather than that it failed. */
    readonly isRefusal: boolean,
  ) {
    super(message);
  }
}

/**
 * Connects to a host through the operator's proxy, with half-open allowed. Leaves nothing open on failure or abort.
 * @param target a name, which the proxy resolves, or an address
 * @throws ProxyError if the proxy does not connect; the signal's reason
 */
export async function connectThrough(
  proxy: OutboundProxy,
  { address, port, signal }: { address: string; port: number; signal: AbortSignal },
): Promise<Socket> {
  const url = new URL(proxy.url);
  const shown = `the proxy ${url.hostname}:${String(portOf(url))}`;
  const socket = open(url);
  const authority = `${isIPv6(address) ? `[${address}]` : address}:${String(port)}`;
  const request = sendRequest({
    method: 'CONNECT',
    path: authority,
    headers: { host: authority, ...credentialsOf(url) },
    createConnection: () => socket,
  });
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void => {
      signal.removeEventListener('abort', onAbort);
      socket.destroy();
      reject(error);
    };
    const onAbort = (): void => fail(signal.reason as Error);
    request.on('error', (error: NodeJS.ErrnoException) =>
      fail(new ProxyError(`${shown} does not answer: ${error.code ?? error.message}`, false)),
    );
    request.once('connect', ({ statusCode = 0 }, _socket, head) => {
      if (statusCode < 200 || statusCode > 299) return fail(answered(shown, proxy, statusCode));
      signal.removeEventListener('abort', onAbort);
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) return onAbort();
    request.end();
  });
}

function open(url: URL): Socket {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const options = { host, port: portOf(url), allowHalfOpen: true };
  const socket =
    url.protocol === 'https:'
      ? connectWithTls({ ...options, ...(isIP(host) === 0 && { servername: host }) })
      : connect(options);
  return socket.setNoDelay(true).setKeepAlive(true, KEEPALIVE_MS);
}

function portOf(url: URL): number {
  return Number(url.port) || (url.protocol === 'https:' ? 443 : 80);
}

function credentialsOf({ username, password }: URL): Record<string, string> {
  if (username === '' && password === '') return {};
  const text = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { 'proxy-authorization': `Basic ${Buffer.from(text).toString('base64')}` };
}

function answered(shown: string, proxy: OutboundProxy, status: number): ProxyError {
  if (status !== PROXY_AUTHENTICATION_REQUIRED)
    return new ProxyError(`${shown} does not connect: it answered ${String(status)}`, status < 500);
  const { setting = 'EGRESS_PROXY', url } = proxy;
  const { username, password } = new URL(url);
  const problem =
    username === '' && password === ''
      ? `requires a user name and a password, and ${setting} has none`
      : `does not accept the user name and password of ${setting}`;
  return new ProxyError(`${shown} ${problem} (${String(status)})`, true);
}
