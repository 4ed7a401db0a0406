import { createSecureContext } from 'node:tls';
import { ConfigError, type EnvironmentReader } from './parse.js';

/** The gateway as a service of its own, for sandboxes on other machines. */
export interface GatewayAddresses {
  /** Where sandboxes reach it. `undefined`: each driver runs the gateway itself. */
  url?: string | undefined;
  /** Where workers reach every gateway, if that is another address. */
  workersUrl?: string | undefined;
  /** Only used with the role `gateway`, as is the rest. */
  port: number;
  /** The certificate and its key, in PEM format. `undefined`: connections are not encrypted. */
  tls?: { cert: string; key: string } | undefined;
  /** How long connections may continue when the gateway stops. */
  drainSeconds: number;
}

/** @throws ConfigError if a part of it is not valid */
export function readGateway(read: EnvironmentReader): GatewayAddresses {
  const url = readAddress(read, 'GATEWAY_URL');
  const workersUrl = readAddress(read, 'GATEWAY_WORKERS_URL');
  if (workersUrl !== undefined && url === undefined)
    throw new ConfigError('GATEWAY_WORKERS_URL', 'needs GATEWAY_URL');
  return {
    url,
    workersUrl,
    port: read.integer('GATEWAY_PORT', 8081, { min: 0, max: 65_535 }),
    tls: readTls(read),
    drainSeconds: read.duration('GATEWAY_DRAIN', 300),
  };
}

/** A gateway with keys of its own could open no grant. */
export function requireKeys(config: { encryptionKeys?: string }): void {
  if (config.encryptionKeys === undefined) {
    throw new ConfigError(
      'ENCRYPTION_KEYS',
      'must be set for APP_ROLE=gateway, with the same keys as for the workers',
    );
  }
}

/** The addresses that the operator has put in place of model providers' own. */
export function modelGatewaysOf({
  providers,
}: {
  providers: Readonly<Record<string, { baseUrl?: string }>>;
}): { host: string; port: number }[] {
  return Object.values(providers).flatMap(({ baseUrl }) => {
    if (baseUrl === undefined) return [];
    const { hostname, port, protocol } = new URL(baseUrl);
    return [
      {
        host: hostname.replace(/^\[|\]$/g, ''),
        port: Number(port) || (protocol === 'https:' ? 443 : 80),
      },
    ];
  });
}

/** Reads an address of a host and a port only: the service that listens there has paths of its own. */
export function readAddress(read: EnvironmentReader, name: string): string | undefined {
  const text = read.url(name, ['http', 'https']);
  if (text === undefined) return undefined;
  const { pathname, search, hash, username, origin } = new URL(text);
  if (pathname !== '/' || search !== '' || hash !== '' || username !== '')
    throw new ConfigError(name, 'must have no path and no user, as in https://gateway.example');
  return origin;
}

function readTls(read: EnvironmentReader): { cert: string; key: string } | undefined {
  const cert = read.file('GATEWAY_CERT_FILE');
  const key = read.file('GATEWAY_KEY_FILE');
  if (cert === undefined && key === undefined) return undefined;
  if (cert === undefined) throw new ConfigError('GATEWAY_KEY_FILE', 'needs GATEWAY_CERT_FILE');
  if (key === undefined) throw new ConfigError('GATEWAY_CERT_FILE', 'needs GATEWAY_KEY_FILE');
  try {
    createSecureContext({ cert, key });
  } catch (error) {
    const { message } = error as Error;
    throw new ConfigError('GATEWAY_CERT_FILE', `and GATEWAY_KEY_FILE do not fit: ${message}`);
  }
  return { cert, key };
}
