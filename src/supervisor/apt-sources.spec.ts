import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import {
  distributionSources,
  formatSources,
  parseDeb822Sources,
  parseOneLineSources,
  readAptSources,
  type AptSource,
} from './package-hosts.js';

const source = (fields: Partial<AptSource>): AptSource => ({
  uris: ['http://mirror.example/debian'],
  suites: ['bookworm'],
  components: ['main'],
  options: {},
  ...fields,
});

describe('parseOneLineSources', () => {
  it('reads entries with and without options', () => {
    const text = `
# deb http://old.example/debian bookworm main
deb http://mirror.example/debian bookworm main contrib # the mirror
deb-src http://mirror.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/a.gpg,/usr/share/keyrings/b.gpg] https://x.example/ bookworm-security main
deb [ trusted=yes ] http://flat.example/ ./
not a line`;
    expect(parseOneLineSources(text)).toEqual([
      source({ components: ['main', 'contrib'] }),
      source({
        uris: ['https://x.example/'],
        suites: ['bookworm-security'],
        options: { 'Signed-By': '/usr/share/keyrings/a.gpg /usr/share/keyrings/b.gpg' },
      }),
      source({
        uris: ['http://flat.example/'],
        suites: ['./'],
        components: [],
        options: { Trusted: 'yes' },
      }),
    ]);
  });
});

describe('parseDeb822Sources', () => {
  const key =
    '\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n -----END PGP PUBLIC KEY BLOCK-----';

  it('reads stanzas, with comments between lines, several values and keys in place', () => {
    const text = `Types: deb deb-src
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Enabled: no
Types: deb
URIs: http://off.example/
Suites: bookworm
Components: main

Types: deb-src
URIs: http://source.example/
Suites: bookworm

types: deb
uris:
 http://a.example/
 http://b.example/
suites: bookworm
components: main
signed-by:${key}
`;
    const sources = parseDeb822Sources(text);
    expect(sources).toEqual([
      source({
        suites: ['bookworm', 'bookworm-updates'],
        options: { 'Signed-By': '/usr/share/keyrings/debian-archive-keyring.gpg' },
      }),
      source({ uris: ['http://a.example/', 'http://b.example/'], options: { 'Signed-By': key } }),
    ]);
    expect(parseDeb822Sources(formatSources(sources))).toEqual(sources);
  });
});

describe('distributionSources', () => {
  it('keeps the release with its pockets and drops third parties', () => {
    const base = source({ suites: ['bookworm', 'bookworm-updates', 'bookworm-pgdg'] });
    const security = source({
      uris: ['http://security.example/'],
      suites: ['bookworm-security'],
      options: { 'Signed-By': '/usr/share/keyrings/debian-archive-keyring.gpg' },
    });
    const kept = distributionSources(
      [
        source({
          uris: ['https://vendor.example/'],
          options: { 'Signed-By': '/etc/apt/vendor.gpg' },
        }),
        source({ components: ['stable'] }),
        source({ suites: ['trixie'] }),
        source({ uris: ['cdrom:[Debian]/', 'file:/srv/debian'] }),
        base,
        security,
      ],
      'bookworm',
    );
    expect(kept).toEqual([{ ...base, suites: ['bookworm', 'bookworm-updates'] }, security]);
  });

  it('takes a mirror with a key of its own where there is no other', () => {
    const own = source({ options: { 'Signed-By': '/etc/apt/company.gpg' } });
    expect(distributionSources([own], 'bookworm')).toEqual([own]);
  });
});

describe('readAptSources', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'apt-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  it('reads the file and the folder, and looks up lists of mirrors', async () => {
    const list = join(folder, 'mirrors');
    await writeFile(
      list,
      '# ours\nhttps://first.example/debian priority:1\nhttps://second.example/\n',
    );
    await mkdir(join(folder, 'sources.list.d'));
    const write = (name: string, text: string) => writeFile(join(folder, name), text);
    await write('sources.list', 'deb http://a.example/ bookworm main\n');
    await write(
      'sources.list.d/b.sources',
      `Types: deb\nURIs: mirror+file:${list}\nSuites: bookworm\nComponents: main\n`,
    );
    await write('sources.list.d/c.list', 'deb http://c.example/ bookworm main\n');
    await write('sources.list.d/d.list.disabled', 'deb http://d.example/ bookworm main\n');
    expect((await readAptSources(folder)).map((entry) => entry.uris)).toEqual([
      ['http://a.example/'],
      ['https://first.example/debian'],
      ['http://c.example/'],
    ]);
  });

  it('finds nothing on a machine without apt', async () => {
    expect(await readAptSources(join(folder, 'none'))).toEqual([]);
  });
});
