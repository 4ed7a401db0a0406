import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';

/** One entry of apt's sources: a mirror with some suites of it. */
export interface AptSource {
  uris: string[];
  suites: string[];
  components: string[];
  /** What else the entry says, by deb822 field name: `Signed-By`, `Trusted`, `Check-Valid-Until`. Values as written. */
  options: Record<string, string>;
}

/** Fields that still mean the same on another machine. */
const CARRIED_OPTIONS = ['Signed-By', 'Trusted', 'Check-Valid-Until'];
/** Keys that distributions sign their own archives with; a third party's repository brings its own. */
const ARCHIVE_KEY = /(debian|ubuntu)-archive/;
const POCKETS = ['', '-updates', '-security', '-backports'];

/** Reads one-line entries, `deb [options] uri suite component…`. Sources of source code are left out. */
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

/** Reads deb822 stanzas. Disabled ones and sources of source code are left out. */
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
 * Picks the distribution's own archive: its release with updates, security and backports, from mirrors that a sandbox
 * can reach by name. Third parties' repositories are left out: their keys and pins are the host's business.
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
