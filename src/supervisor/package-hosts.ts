import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** One entry of apt's sources: a mirror with some of its suites. */
export interface AptSource {
  uris: string[];
  suites: string[];
  components: string[];
  /** Other fields of the entry by deb822 name: `Signed-By`, `Trusted`, `Check-Valid-Until`. Values are unchanged. */
  options: Record<string, string>;
}

/** Fields that have the same meaning on another machine. */
const CARRIED_OPTIONS = ['Signed-By', 'Trusted', 'Check-Valid-Until'];
/** The keys with which distributions sign their own archives. Third-party repositories use other keys. */
const ARCHIVE_KEY = /(debian|ubuntu)-archive/;
const POCKETS = ['', '-updates', '-security', '-backports'];

/** Reads one-line entries, `deb [options] uri suite component…`. Ignores sources of source code. */
export function parseOneLineSources(text: string): AptSource[] {
  return text.split('\n').flatMap((line) => {
    const match = /^\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)([^#]*)/.exec(line);
    if (!match) return [];
    const [, optionText = '', uri = '', suite = '', components = ''] = match;
    const options: Record<string, string> = {};
    for (const [, key = '', value = ''] of optionText.matchAll(/([\w-]+)\+?=(\S+)/g)) {
      const name = CARRIED_OPTIONS.find((option) => option.toLowerCase() === key.toLowerCase());
      if (name) options[name] = value.replaceAll(',', ' ');
    }
    return [{ uris: [uri], suites: [suite], components: words(components), options }];
  });
}

/** Reads deb822 stanzas. Ignores disabled ones and sources of source code. */
export function parseDeb822Sources(text: string): AptSource[] {
  const withoutComments = text.replaceAll(/^#.*\n?/gm, '');
  return withoutComments.split(/\n\s*\n/).flatMap((stanza) => {
    const fields = new Map<string, string>();
    for (const [, name = '', value = ''] of stanza.matchAll(/^([\w-]+):((?:.*)(?:\n[ \t].*)*)/gm)) {
      fields.set(name.toLowerCase(), value.replace(/^[ \t]+/, '').trimEnd());
    }
    const list = (name: string): string[] => words(fields.get(name) ?? '');
    const disabled = /^(no|false|without|off|disable|0)$/i.test(fields.get('enabled') ?? '');
    if (disabled || !list('types').includes('deb')) return [];
    const options: Record<string, string> = {};
    for (const name of CARRIED_OPTIONS) {
      const value = fields.get(name.toLowerCase());
      if (value !== undefined) options[name] = value;
    }
    const source = { uris: list('uris'), suites: list('suites'), components: list('components') };
    return source.uris.length > 0 && source.suites.length > 0 ? [{ ...source, options }] : [];
  });
}

/** Writes entries as deb822. */
export function formatSources(sources: readonly AptSource[]): string {
  return sources
    .map((source) =>
      [
        'Types: deb',
        `URIs: ${source.uris.join(' ')}`,
        `Suites: ${source.suites.join(' ')}`,
        ...(source.components.length > 0 ? [`Components: ${source.components.join(' ')}`] : []),
        ...Object.entries(source.options).map(
          ([name, value]) => `${name}:${value.startsWith('\n') ? '' : ' '}${value}`,
        ),
        '',
      ].join('\n'),
    )
    .join('\n');
}

/**
 * Selects the distribution's own archive: its release with updates, security and backports, from mirrors that a sandbox
 * can reach by name. Ignores third-party repositories, because their keys and pins only apply to the host.
 */
export function distributionSources(sources: readonly AptSource[], codename: string): AptSource[] {
  const suites = new Set(POCKETS.map((pocket) => codename + pocket));
  const fitting = sources.flatMap((source) => {
    const uris = source.uris.filter((uri) => /^https?:\/\//.test(uri));
    const wanted = source.suites.filter((suite) => suites.has(suite));
    const fits = uris.length > 0 && wanted.length > 0 && source.components.includes('main');
    return fits ? [{ ...source, uris, suites: wanted }] : [];
  });
  const official = fitting.filter(({ options }) => {
    const key = options['Signed-By'];
    return key === undefined || ARCHIVE_KEY.test(key);
  });
  const hasBase = (list: readonly AptSource[]): boolean =>
    list.some((source) => source.suites.includes(codename));
  return hasBase(official) ? official : fitting;
}

/** Reads the sources of a machine's /etc/apt, with lists of mirrors resolved to the mirrors. */
export async function readAptSources(etcApt: string): Promise<AptSource[]> {
  const folder = join(etcApt, 'sources.list.d');
  const names = (await readdir(folder).catch(() => [])).sort((a, b) => (a < b ? -1 : 1));
  const read = (path: string): Promise<string> => readFile(path, 'utf8').catch(() => '');
  const sources = parseOneLineSources(await read(join(etcApt, 'sources.list')));
  for (const name of names) {
    const text = await read(join(folder, name));
    if (name.endsWith('.list')) sources.push(...parseOneLineSources(text));
    if (name.endsWith('.sources')) sources.push(...parseDeb822Sources(text));
  }
  for (const source of sources) {
    const resolved = await Promise.all(
      source.uris.map(async (uri) => {
        const list = /^mirror\+file:(?:\/\/)?(\/.*)$/.exec(uri)?.[1];
        if (list === undefined) return [uri];
        const lines = (await read(list))
          .split('\n')
          .map((line) => line.trim().split(/\s/)[0] ?? '');
        return lines.filter((line) => line !== '' && !line.startsWith('#')).slice(0, 1);
      }),
    );
    source.uris = resolved.flat();
  }
  return sources;
}

function words(text: string): string[] {
  return text.split(/\s+/).filter((word) => word !== '');
}

const run = promisify(execFile);

/**
 * Registries that are the defaults of their clients. Those of npm and apt are read from the settings instead, because
 * they are often mirrors.
 */
const REGISTRIES = [
  'pypi.org',
  'files.pythonhosted.org',
  'crates.io',
  'index.crates.io',
  'static.crates.io',
  'rubygems.org',
  'index.rubygems.org',
  'proxy.golang.org',
  'sum.golang.org',
];

/** The hosts that package managers in sandboxes of this machine install from. */
export async function readPackageHosts(signal: AbortSignal): Promise<readonly string[]> {
  return hostsOf(await readAptSources('/etc/apt'), await npmRegistry(signal));
}

/**
 * A shell script that prints the settings of apt and npm, for machines on which nothing else of ours may run; see
 * {@link parsePackageSettings}.
 */
export const PRINT_PACKAGE_SETTINGS = `
cd /
print() { for file; do [ -f "$file" ] && sed '/^ *#/d' "$file" && echo; done; }
print /etc/apt/sources.list /etc/apt/sources.list.d/*.list
echo ====
print /etc/apt/sources.list.d/*.sources
echo ====
npm config get registry 2>/dev/null || true`;

/**
 * The hosts that package managers install from, by the output of {@link PRINT_PACKAGE_SETTINGS}.
 * @throws Error if it is something else
 */
export function parsePackageSettings(output: string): readonly string[] {
  const [lines, stanzas, registry, ...more] = output.split(/^====$/m);
  if (lines === undefined || stanzas === undefined || registry === undefined || more.length > 0) {
    throw new Error(`these are no settings of package managers: ${output.trim().slice(-300)}`);
  }
  return hostsOf([...parseOneLineSources(lines), ...parseDeb822Sources(stanzas)], registry.trim());
}

function hostsOf(sources: readonly AptSource[], registry: string): readonly string[] {
  const urls = [...sources.flatMap((source) => source.uris), registry];
  const hosts = urls.flatMap((url) => (URL.canParse(url) ? [new URL(url).hostname] : []));
  return [...new Set([...hosts, ...REGISTRIES])].filter((host) => host !== '');
}

/** @returns the registry's address, `''` if npm is not installed. */
async function npmRegistry(signal: AbortSignal): Promise<string> {
  try {
    const { stdout } = await run('npm', ['config', 'get', 'registry'], { signal, cwd: '/' });
    return stdout.trim();
  } catch {
    signal.throwIfAborted();
    return '';
  }
}
