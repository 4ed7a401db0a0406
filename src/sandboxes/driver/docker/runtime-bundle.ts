import { createHash } from 'node:crypto';
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import { Readable } from 'node:stream';
import { pack } from 'tar-stream';
import { confine, confineProgram, hasConfineProgram } from '../../../supervisor/confine.js';
import { SUPERVISOR_NODE_FLAGS } from '../../../supervisor/start.js';
import { packageRoot } from '../../../common/package-root.js';
import { type BundledFile, filesBelow, sharedLibraries, withoutPreload } from '../runtime-files.js';
import { GATEWAY_MOUNT, RUNTIME_MOUNT } from './options.js';

/** The user of relays and gateways. */
export const NOBODY = 65_534;
/** The files of a relay: its policy and its control socket. */
export const RELAY_STATE = '/state';

/** Increase this when the bundle's layout changes. */
const FORMAT = 3;
const PROGRAMS = 'dist/src/sandboxes/driver/docker/inside';
/** The programs and the modules that they import, relative to the service's package. */
const PARTS = [
  PROGRAMS,
  'dist/src/supervisor',
  'dist/src/gateway/main.js',
  'dist/src/gateway/client.js',
  'dist/src/gateway/http-headers.js',
  'dist/src/gateway/protocol.js',
  'dist/src/gateway/read-line.js',
  'dist/src/gateway/socket-path.js',
  'dist/src/gateway/network/dial-gateway.js',
  'dist/src/gateway/network/trust.js',
  'dist/src/gateway/egress',
  'dist/src/common/arrivals.js',
  'dist/src/common/async.js',
  'dist/src/common/egress-network.js',
  'dist/src/common/host-pattern.js',
  'dist/src/common/missing-file.js',
  'dist/src/common/package-root.js',
  'dist/src/common/rate-limit.js',
  'node_modules/dns-packet',
  'node_modules/@leichtgewicht/ip-codec',
];
const FOLDER = `${RUNTIME_MOUNT}/runtime`;
/** Otherwise OpenSSL reads the image's configuration, which may name libraries to load. */
const OWN_OPENSSL = '--openssl-config=/dev/null';
const NODE_FLAGS = [...SUPERVISOR_NODE_FLAGS, OWN_OPENSSL];

/**
 * Node with its libraries, and the programs of supervisors, relays and gateways: everything that runs in containers besides the
 * agent. Therefore sandbox images need none of it and cannot interfere with it. The bundle is identical on all hosts
 * with the same build.
 */
export class RuntimeBundle {
  private readonly files: BundledFile[];
  private readonly loader: string;
  /** A name derived from the bundle's contents. */
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
      ...libraries.map((path) => ({
        ...host(`lib/${basename(path)}`, path, 0o555),
        ...(basename(path) === this.loader && { read: () => withoutPreload(readFileSync(path)) }),
      })),
    ];
    // If this is missing, the preflight check reports it.
    if (hasConfineProgram(root)) {
      this.files.push(host(relative(root, confineProgram(root)), confineProgram(root), 0o555));
    }
    const hash = createHash('sha256').update(`${FORMAT} ${process.arch}\n`);
    for (const { path, read } of this.files) hash.update(`${path}\n`).update(read());
    this.digest = hash.digest('hex').slice(0, 16);
  }

  /** The path of the program that confines agents, where the bundle is mounted. */
  get confine(): string {
    return confineProgram(FOLDER);
  }

  /**
   * The command that runs one of the programs, where the bundle is mounted. It uses neither variables nor libraries of
   * the image, because a tenant's setup script may have changed them.
   */
  command(program: string, ...args: readonly string[]): string[] {
    const cleared = confine(this.confine, { clearEnvironment: true });
    return [...cleared, ...this.nodeCommand(program, ...args)];
  }

  /** The part of a command that runs one of the programs, after the image's variables were removed. */
  nodeCommand(program: string, ...args: readonly string[]): string[] {
    return [...this.node, ...NODE_FLAGS, `${FOLDER}/dist/src/${program}`, ...args];
  }

  /**
   * The command that runs the gateway. It keeps the container's variables, which have the configuration: in the bundle's
   * own image there are no others, and no tenant can change them.
   */
  gatewayCommand(program: string, heapMiB: number): string[] {
    const heap = `--max-old-space-size=${heapMiB}`;
    return [...this.node, OWN_OPENSSL, heap, `${FOLDER}/dist/src/${program}`];
  }

  /** Uses the bundle's own loader, because the image may have other or incompatible libraries. */
  private get node(): string[] {
    const libraries = `${FOLDER}/lib`;
    return [`${libraries}/${this.loader}`, '--library-path', libraries, `${FOLDER}/bin/node`];
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
    folder(GATEWAY_MOUNT, NOBODY);
    folder('/tmp', 0, 0o1777);
    for (const { path, read, mode } of this.files) {
      archive.entry({ name: `${FOLDER.slice(1)}/${path}`, mode }, read());
    }
    archive.finalize();
    return Readable.from(archive);
  }
}
