import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import {
  distributionSources,
  readAptSources,
  type AptSource,
} from '../../../../supervisor/package-hosts.js';
import { RootfsError } from './contained.js';

/** The host's package sources and apt settings. */
export interface HostApt {
  codename: string;
  /** The mirror of the release itself. */
  mirror: string;
  sources: AptSource[];
  /** Files with keys and certificates for apt, which the template needs at the same paths. */
  keyFiles: string[];
  /** apt.conf text with the host's network settings: proxies, timeouts, TLS. Without files of credentials. */
  configuration: string;
  /** Proxy variables for the tools that are not apt. */
  proxies: Record<string, string>;
  /** Does the host trust this mirror without a signature? */
  unsigned: boolean;
  /** The key ring for the release itself; `undefined` for the distribution's default. */
  keyring?: string;
}

const CARRIED_SETTING =
  /^Acquire::(?:(?:https?::|ForceIPv|Retries|Check-Valid-Until)\S*) "(?:[^"\\\n]*)";$/;
/** Settings that name a program or a credential of the host. */
const HOST_ONLY_SETTING = /Auto-?Detect|SslKey|SslCert|ProxyAutoDetect/i;
const PROXY_SETTINGS = [
  ['http_proxy', 'Acquire::http::Proxy'],
  ['https_proxy', 'Acquire::https::Proxy'],
] as const;

/**
 * Reads the machine's own package sources.
 * @throws RootfsError if none of them serves the host's release
 */
export async function readHostApt(): Promise<HostApt> {
  const release = await readFile('/etc/os-release', 'utf8').catch(() => '');
  const codename = /^VERSION_CODENAME="?([a-z]+)"?$/m.exec(release)?.[1];
  const sources =
    codename === undefined ? [] : distributionSources(await readAptSources('/etc/apt'), codename);
  const base = sources.find((source) => source.suites.includes(codename ?? ''));
  const mirror = base?.uris[0];
  if (codename === undefined || base === undefined || mirror === undefined) {
    throw new RootfsError(
      'installing software in sandboxes needs a Debian host: no mirror of its release in /etc/apt/sources.list or /etc/apt/sources.list.d',
    );
  }

  const dump = await aptConfiguration();
  const lines = dump
    .split('\n')
    .filter((line) => CARRIED_SETTING.test(line) && !HOST_ONLY_SETTING.test(line));
  const setting = (name: string): string | undefined =>
    lines.find((line) => line.startsWith(`${name} "`))?.slice(name.length + 2, -2);
  const proxies: Record<string, string> = {};
  for (const [variable, name] of PROXY_SETTINGS) {
    const value = setting(name) ?? '';
    if (value !== '' && value !== 'DIRECT') proxies[variable] = value;
  }

  const baseKey = base.options['Signed-By'];
  return {
    codename,
    mirror,
    sources,
    keyFiles: [
      ...sources.flatMap((source) => pathsIn(source.options['Signed-By'] ?? '')),
      ...lines.flatMap((line) => (/CaInfo|CaPath/i.test(line) ? pathsIn(line) : [])),
    ],
    configuration: `${lines.join('\n')}\n`,
    proxies,
    unsigned: /^(yes|true|1)$/i.test(base.options['Trusted'] ?? ''),
    ...(baseKey !== undefined && /^\/\S+\.(gpg|pgp)$/.test(baseKey) ? { keyring: baseKey } : {}),
  };
}

async function aptConfiguration(): Promise<string> {
  try {
    return (await promisify(execFile)('apt-config', ['dump'])).stdout;
  } catch {
    return '';
  }
}

function pathsIn(text: string): string[] {
  return [...text.matchAll(/(?:^|[\s"])(\/[^\s"]+)/g)].map((match) => match[1] ?? '');
}
