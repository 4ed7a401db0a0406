import { isIP } from 'node:net';
import type { DirectHost } from '../common/egress-network.js';
import { parseHostPattern } from '../common/host-pattern.js';
import { ConfigError, type EnvironmentReader } from './parse.js';

export const PROXY_PROTOCOLS: readonly string[] = ['http', 'https'];
const HAS_SCHEME = /^[a-z][a-z0-9+.-]*:\/\//i;
const RANGE = /^(.+)\/(\d{1,3})$/;

/** The proxy that the host's own variables name for all programs. */
export interface HostProxy {
  /** The variable that has it. */
  setting: string;
  url: string;
  direct: readonly DirectHost[];
}

/**
 * Reads HTTPS_PROXY and NO_PROXY, or their lower-case names, as curl does.
 * @returns nothing if there is no proxy, or NO_PROXY exempts all hosts
 * @throws ConfigError if the URL is not one of an HTTP proxy. It does not repeat the value, which may have a password.
 */
export function readHostProxy(read: EnvironmentReader): HostProxy | undefined {
  const setting = ['HTTPS_PROXY', 'https_proxy'].find((name) => read.text(name) !== undefined);
  if (setting === undefined) return undefined;
  const entries = (read.text('NO_PROXY') ?? read.text('no_proxy') ?? '').split(/[\s,]+/);
  if (entries.includes('*')) return undefined;
  const text = read.text(setting) ?? '';
  const url = HAS_SCHEME.test(text) ? text : `http://${text}`;
  if (!URL.canParse(url) || !PROXY_PROTOCOLS.includes(new URL(url).protocol.slice(0, -1))) {
    throw new ConfigError(
      setting,
      'must be the URL of an HTTP proxy; EGRESS_PROXY names another one, or "off" for none',
    );
  }
  return { setting, url, direct: entries.flatMap(directHosts) };
}

/** What an entry of NO_PROXY exempts. Other programs may use entries that mean nothing here, so these are no error. */
function directHosts(entry: string): DirectHost[] {
  const bare = entry.replace(/^\[(.*)\]$/, '$1').toLowerCase();
  if (isIP(bare) !== 0) return [{ host: bare }];
  if (isRange(bare)) return [{ host: bare }];
  const [, name = bare, digits] = /^(.*):(\d+)$/.exec(bare) ?? [];
  const port = digits === undefined ? undefined : Number(digits);
  const address = name.replace(/^\[(.*)\]$/, '$1');
  if (isIP(address) !== 0) return [{ host: address, port }];
  try {
    // A name stands for itself and for all names below it.
    const host = parseHostPattern(name.replace(/^\*?\./, ''));
    return [
      { host, port },
      { host: { ...host, kind: 'subdomains' }, port },
    ];
  } catch {
    return [];
  }
}

function isRange(text: string): boolean {
  const [, address = '', bits = ''] = RANGE.exec(text) ?? [];
  const family = isIP(address);
  return family !== 0 && Number(bits) <= (family === 4 ? 32 : 128);
}
