import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { Readable } from 'node:stream';
import { pack } from 'tar-stream';
import { packageRoot } from '../shared/package-root.js';
import { EGRESS_MOUNT, RUNTIME_MOUNT } from './names.js';

/** Whom relays and the egress run as. */
export const NOBODY = 65_534;
/** Where a relay keeps its policy, and where it is spoken to. */
export const RELAY_STATE = '/state';

/** Counts up when the bundle's layout changes. */
const FORMAT = 1;
const PROGRAMS = 'dist/src/sandboxes/docker/inside';
/** What the programs are and import, below the service's package. */
const PARTS = [
  PROGRAMS,
  'dist/src/sandboxes/shared',
  'dist/src/sandboxes/sandbox-error.js',
  'dist/src/common/host-pattern.js',
  'node_modules/dns-packet',
  'node_modules/@leichtgewicht/ip-codec',
];
const FOLDER = `${RUNTIME_MOUNT}/runtime`;
/** These programs mostly wait: a small heap keeps a hundred of them cheap. */
const NODE_FLAGS = ['--max-old-space-size=64', '--max-semi-space-size=1', '--no-warnings'];

interface BundledFile {
  path: string;
  read: () => Buffer;
  mode: number;
}

/**
 * Node with the libraries that it needs, and the programs of supervisors and relays: everything that runs in containers
 * beside the agent, so that sandbox images need nothing of it and cannot get in its way. The same on every host that
 * runs the same build.
 */
export class RuntimeBundle {
  private readonly files: readonly BundledFile[];
  private readonly loader: string;
  /** Names the bundle for what is in it. */
  readonly digest: string;

  /** @throws Error if the service has not been built */
  constructor() {
    const root = packageRoot();
    if (!existsSync(join(root, PROGRAMS))) {
      throw new Error(`${join(root, PROGRAMS)} is missing: run \`npm run build\``);
    }
    const libraries = sharedLibraries();
    this.loader = basename(libraries.find((path) => /^ld[-.]/.test(basename(path))) ?? '');
    const programs = PARTS.flatMap((part) => filesBelow(root, part));
    const own = {
      path: 'package.json',
      read: () => Buffer.from('{"type":"module"}\n'),
      mode: 0o444,
    };
    const host = (path: string, from: string, mode: number): BundledFile => ({
      path,
      read: () => readFileSync(from),
      mode,
    });
    this.files = [
      ...programs,
      own,
      host('bin/node', realpathSync(process.execPath), 0o555),
      ...libraries.map((path) => host(`lib/${basename(path)}`, path, 0o555)),
    ];
    const hash = createHash('sha256').update(`${FORMAT} ${process.arch}\n`);
    for (const { path, read } of this.files) hash.update(`${path}\n`).update(read());
    this.digest = hash.digest('hex').slice(0, 16);
  }

  /** The command that runs one of the programs, where the bundle is mounted. */
  command(program: string, ...args: readonly string[]): string[] {
    // By its own loader: the image may have other libraries, or none that fit.
    const node = [`${FOLDER}/lib/${this.loader}`, '--library-path', `${FOLDER}/lib`];
    return [
      ...node,
      `${FOLDER}/bin/node`,
      ...NODE_FLAGS,
      `${FOLDER}/dist/src/sandboxes/${program}`,
      ...args,
    ];
  }

  /** The folder that {@link command} expects. */
  get folder(): string {
    return FOLDER;
  }

  /** A root file system with the bundle and nothing else, as a tar archive. */
  archive(): Readable {
    const archive = pack();
    const folder = (name: string, owner: number, mode = 0o755): void =>
      void archive.entry({ name: name.slice(1), type: 'directory', mode, uid: owner, gid: owner });
    folder(RELAY_STATE, NOBODY);
    folder(EGRESS_MOUNT, NOBODY);
    folder('/tmp', 0, 0o1777);
    for (const { path, read, mode } of this.files) {
      archive.entry({ name: `${FOLDER.slice(1)}/${path}`, mode }, read());
    }
    archive.finalize();
    return Readable.from(archive);
  }
}

/** The libraries that this very Node runs with, its loader among them. */
function sharedLibraries(): string[] {
  const { sharedObjects } = process.report.getReport() as unknown as { sharedObjects: string[] };
  return sharedObjects
    .filter((path) => path.startsWith('/') && existsSync(path))
    .filter(
      // Addons of this process's own are not Node's.
      (path) => !path.endsWith('.node'),
    );
}

function filesBelow(root: string, part: string): BundledFile[] {
  const path = join(root, part);
  if (statSync(path).isDirectory()) {
    return readdirSync(path)
      .toSorted()
      .flatMap((name) => filesBelow(root, join(part, name)));
  }
  if (!/\.(?:[cm]?js|json)$/.test(part)) return [];
  return [{ path: part, read: () => readFileSync(path), mode: 0o444 }];
}
