import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import type {
  DirectHost,
  EgressNetwork,
  OutboundProxy,
  PrivateHost,
} from '../common/egress-network.js';
import { type HostAndPort, HostPatternError, parseHostAndPort } from '../common/host-pattern.js';
import { PROXY_PROTOCOLS, readHostProxy } from './host-proxy.js';
import { ConfigError, type EnvironmentReader } from './parse.js';

/** The ports of a private host that is listed without one: those on which sandboxes reach any host. */
const USUAL_PORTS: readonly number[] = [80, 443, 22];
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g;

/** @throws ConfigError if a part of it is not valid */
export function readNetwork(read: EnvironmentReader): EgressNetwork {
  return {
    privateHosts: listOf(read, 'EGRESS_PRIVATE_HOSTS').map(privateHost),
    proxy: readProxy(read),
    certificates: readCertificates(read, 'SANDBOX_CA_FILE'),
  };
}

function privateHost(text: string): PrivateHost {
  if (isIP(text.replace(/\/.*/, '')) !== 0) {
    throw new ConfigError(
      'EGRESS_PRIVATE_HOSTS',
      `"${text}" is an address: list the names that have it`,
    );
  }
  const { host, port } = parseEntry('EGRESS_PRIVATE_HOSTS', text);
  if (`.${host.name}`.endsWith('.localhost')) {
    throw new ConfigError(
      'EGRESS_PRIVATE_HOSTS',
      `"${text}" is this machine, which sandboxes cannot reach`,
    );
  }
  return { host, ports: port === undefined ? USUAL_PORTS : [port] };
}

/** EGRESS_PROXY wins over the proxy that the host's own variables name. */
function readProxy(read: EnvironmentReader): OutboundProxy | undefined {
  const own = read.text('EGRESS_PROXY');
  const isOff = own === 'off';
  const host = own === undefined ? readHostProxy(read) : undefined;
  const url = isOff ? undefined : (host?.url ?? read.url('EGRESS_PROXY', PROXY_PROTOCOLS));
  const listed = read.text('EGRESS_NO_PROXY') !== undefined;
  const direct = listOf(read, 'EGRESS_NO_PROXY').map(directHost);
  const resolves = read.oneOf('EGRESS_PROXY_DNS', 'off', ['on', 'off']) === 'on';
  if (url === undefined) {
    for (const name of ['EGRESS_NO_PROXY', 'EGRESS_PROXY_DNS'])
      if (!isOff && read.text(name) !== undefined)
        throw new ConfigError(name, 'needs EGRESS_PROXY');
    return undefined;
  }
  requireProxyUrl(host?.setting ?? 'EGRESS_PROXY', url);
  return {
    url,
    resolves,
    direct: listed || host === undefined ? direct : host.direct,
    ...(host && { setting: host.setting }),
  };
}

/** @throws ConfigError if no proxy has this URL */
function requireProxyUrl(setting: string, url: string): void {
  const { pathname, search, hash, username, password } = new URL(url);
  if (pathname !== '/' || search !== '' || hash !== '')
    throw new ConfigError(setting, 'must have no path, as in http://proxy.example:3128');
  try {
    decodeURIComponent(username + password);
  } catch {
    throw new ConfigError(setting, 'has a "%" in its user or password: write it as "%25"');
  }
}

function directHost(text: string): DirectHost {
  return isIP(text) === 0 ? parseEntry('EGRESS_NO_PROXY', text) : { host: text.toLowerCase() };
}

/** The certificates of a file, one in each element. */
function readCertificates(read: EnvironmentReader, name: string): readonly string[] | undefined {
  const path = read.text(name);
  const text = read.file(name);
  if (path === undefined || text === undefined) return undefined;
  const found = text.match(CERTIFICATE) ?? [];
  if (found.length === 0) throw new ConfigError(name, `${path} has no certificate in PEM format`);
  if (text.includes('PRIVATE KEY-----'))
    throw new ConfigError(name, `${path} has a private key; it must have certificates only`);
  return found.map((pem, index) => {
    try {
      return new X509Certificate(pem).toString();
    } catch {
      throw new ConfigError(name, `certificate ${String(index + 1)} of ${path} is not valid`);
    }
  });
}

function listOf(read: EnvironmentReader, name: string): string[] {
  return (read.text(name) ?? '')
    .split(',')
    .map((entry) => entry.trim())
    .filter((entry) => entry !== '');
}

function parseEntry(name: string, text: string): HostAndPort {
  try {
    return parseHostAndPort(text);
  } catch (error) {
    if (error instanceof HostPatternError) throw new ConfigError(name, error.message);
    throw error;
  }
}
