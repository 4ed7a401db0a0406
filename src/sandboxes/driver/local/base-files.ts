import { existsSync } from 'node:fs';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { certificateBundle, certificateEnvironment } from '../certificates.js';
import { AGENT_ID, HOME, HOST_NAME, SYSTEM_PATH } from '../../../supervisor/sandbox-options.js';
import { NAMESERVER } from '../../../supervisor/relay/listener-plan.js';

/**
 * Where tools are mounted in a sandbox. This and the following mount points are not below a folder that a sandbox may
 * write to, because mounting there would follow the agent's links.
 */
export const TOOLS = '/tools';
/** Where the program is mounted that sets limits. It runs first in a sandbox. */
export const CONFINE = '/.confine';
/** Where the session's own agent program is mounted. */
export const PROGRAMS = '/programs';

/** Where the certificates that programs trust are mounted, if the operator has added some. */
export const CERTIFICATES = '/certificates.pem';
/** The name of the certificates in the folder of the identity files. */
export const CERTIFICATES_FILE = 'certificates.pem';

/** The files in /etc that say who and where a sandbox is. Nothing in them comes from the host. */
export const IDENTITY_FILES: Readonly<Record<string, string>> = {
  passwd: [
    'root:x:0:0:root:/root:/bin/bash',
    `agent:x:${AGENT_ID}:${AGENT_ID}:agent:${HOME}:/bin/bash`,
    'nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin',
    '',
  ].join('\n'),
  group: ['root:x:0:', `agent:x:${AGENT_ID}:`, 'tty:x:5:', 'nogroup:x:65534:', ''].join('\n'),
  hosts: `127.0.0.1 localhost ${HOST_NAME}\n::1 localhost ip6-localhost\n`,
  hostname: `${HOST_NAME}\n`,
  'resolv.conf': `nameserver ${NAMESERVER}\noptions timeout:5 attempts:2\n`,
  'nsswitch.conf':
    'passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n',
};

/** What programs under the host's /usr need from the host's /etc. None of it is secret on any system known. */
const HOST_ETC = [
  'alternatives',
  'bash.bashrc',
  'ca-certificates',
  'ca-certificates.conf',
  'crypto-policies',
  'fonts',
  'inputrc',
  'java-17-openjdk',
  'java-21-openjdk',
  'ld.so.cache',
  'ld.so.conf',
  'ld.so.conf.d',
  'localtime',
  'magic',
  'mime.types',
  'perl',
  'pki/ca-trust',
  'pki/tls/certs',
  'profile.d',
  'protocols',
  'python3',
  'python3.11',
  'python3.12',
  'python3.13',
  'services',
  'ssl/certs',
  'ssl/openssl.cnf',
  'terminfo',
  'timezone',
] as const;

const SYSTEM_AUTHORITIES = '/etc/ssl/certs/ca-certificates.crt';

/** Absolute paths of those that this host has. */
export function hostEtcEntries(): string[] {
  return HOST_ETC.map((name) => join('/etc', name)).filter((path) => existsSync(path));
}

/**
 * The environment of everything in a sandbox, before the launch's own.
 * @param tools a folder whose `bin` comes before the system's, if there is one
 * @param programs one whose `bin` comes last: what the sandbox has of its own goes before what it is given
 * @param certificates the file of the certificates to trust, if the operator has added some
 */
export function baseEnvironment(
  home: string,
  user: string,
  tools: string | null,
  programs: string | null,
  certificates: string | null,
): Record<string, string> {
  const bin = (folder: string | null): string[] => (folder === null ? [] : [`${folder}/bin`]);
  const path = [`${home}/.local/bin`, ...bin(tools), SYSTEM_PATH, ...bin(programs)];
  return {
    PATH: path.join(':'),
    HOME: home,
    USER: user,
    LANG: 'C.UTF-8',
    TERM: 'dumb',
    // Node brings its own authorities; whoever adds one to the system, as companies do, means Node, too.
    ...(existsSync(SYSTEM_AUTHORITIES) && { NODE_EXTRA_CA_CERTS: SYSTEM_AUTHORITIES }),
    ...(certificates !== null && certificateEnvironment(certificates)),
  };
}

/**
 * Writes the identity files into a folder, leaving those that are right. Safe beside others doing the same.
 * @param certificates those that the operator has added, each in PEM
 */
export async function writeIdentityFiles(
  folder: string,
  certificates: readonly string[] | undefined,
): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o755 });
  const files = {
    ...IDENTITY_FILES,
    ...(certificates && { [CERTIFICATES_FILE]: certificateBundle(certificates) }),
  };
  for (const [name, content] of Object.entries(files)) {
    const path = join(folder, name);
    if ((await readFile(path, 'utf8').catch(() => null)) === content) continue;
    const draft = join(folder, `.${name}-${randomBytes(6).toString('hex')}`);
    await writeFile(draft, content, { mode: 0o644 });
    await rename(draft, path);
  }
}
