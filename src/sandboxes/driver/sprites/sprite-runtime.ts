import { createHash } from 'node:crypto';
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { pack } from 'tar-stream';
import { packageRoot } from '../../../common/package-root.js';
import { confine, confineProgram, hasConfineProgram } from '../../../supervisor/confine.js';
import type { ServedPlace } from '../../../supervisor/served-place.js';
import { SUPERVISOR_NODE_FLAGS } from '../../../supervisor/start.js';
import { type BundledFile, filesBelow, sharedLibraries, withoutPreload } from '../runtime-files.js';
import { HOME, WORKSPACE } from '../../../supervisor/sandbox-options.js';
import { AGENT, FOLDER, GATEWAY_LINK, LAUNCHES, TMP } from './options.js';

const compress = promisify(gzip);

/** Increase this when the layout changes. */
const FORMAT = 1;
const PARTS = [
  'dist/src/supervisor',
  'dist/src/gateway/client.js',
  'dist/src/gateway/egress',
  'dist/src/gateway/network/dial-gateway.js',
  'dist/src/gateway/network/trust.js',
  'dist/src/gateway/protocol.js',
  'dist/src/gateway/read-line.js',
  'dist/src/gateway/socket-path.js',
  'dist/src/common/arrivals.js',
  'dist/src/common/async.js',
  'dist/src/common/egress-network.js',
  'dist/src/common/host-pattern.js',
  'dist/src/common/missing-file.js',
  'dist/src/common/package-root.js',
  'dist/src/common/rate-limit.js',
];
const NODE_FLAGS = [...SUPERVISOR_NODE_FLAGS, '--openssl-config=/dev/null'];
/** How long a worker's program waits for the supervisor of a machine that has just started. */
const PATIENCE_MS = 15_000;

/** Runs a command as root, whoever the vendor's default user is. */
export const AS_ROOT = [
  '/bin/sh',
  '-c',
  'if [ "$(id -u)" = 0 ]; then exec "$@"; else exec sudo -n -- "$@"; fi',
  'sh',
] as const;

/** The folder, service and socket of one version of the programs in a sprite. */
export function namesOf(digest: string) {
  return {
    folder: `${FOLDER}/runtime-${digest}`,
    service: `agent-session-${digest}`,
    socket: `${FOLDER}/socket-${digest}`,
  };
}

/**
 * The programs that run in a sprite beside the agent. They use a Node of their own, with its libraries: a setup script
 * may replace those of the image. It is copied from the image if that has one that is new enough, and uploaded if not.
 */
export class SpriteRuntime {
  private readonly files: BundledFile[];
  /** The name of the dynamic loader, which differs by processor. */
  private readonly loader: string;
  readonly digest: string;
  private readonly packed = new Map<boolean, Promise<Buffer>>();

  /**
   * @param diskBytes how much the agent's folders may hold
   * @throws Error if the service has not been built
   */
  constructor(private readonly diskBytes: number) {
    const root = packageRoot();
    if (!hasConfineProgram(root)) {
      throw new Error(`${confineProgram(root)} is missing: run \`npm run build\``);
    }
    this.loader = basename(sharedLibraries().find((path) => /^ld[-.]/.test(basename(path))) ?? '');
    const confinePath = relative(root, confineProgram(root));
    const own = (path: string, text: string) => ({
      path,
      read: () => Buffer.from(text),
      mode: 0o444,
    });
    this.files = [
      ...PARTS.filter((part) => existsSync(join(root, part))).flatMap((part) =>
        filesBelow(root, part),
      ),
      own('package.json', '{"type":"module"}\n'),
      { path: confinePath, read: () => readFileSync(confineProgram(root)), mode: 0o555 },
    ];
    const hash = createHash('sha256').update(`${FORMAT} ${process.arch}\n`);
    for (const { path, read } of this.files) hash.update(`${path}\n`).update(read());
    this.digest = hash.digest('hex').slice(0, 16);
  }

  /** The folder in sprites. */
  get folder(): string {
    return namesOf(this.digest).folder;
  }

  get confine(): string {
    return confineProgram(this.folder);
  }

  /** The name of the service. Another version has its own, so that it does not end what this one started. */
  get service(): string {
    return namesOf(this.digest).service;
  }

  /** The socket of the supervisor. */
  private get socket(): string {
    return namesOf(this.digest).socket;
  }

  /** Runs one of the programs with nothing of the image but the shell that becomes root. */
  command(program: string, ...args: readonly string[]): [string, ...string[]] {
    const cleared = confine(this.confine, { clearEnvironment: true });
    return [...AS_ROOT, ...cleared, ...this.node(program), ...args];
  }

  /** The supervisor, which runs as a service. */
  daemon(): [string, ...string[]] {
    const place: ServedPlace = {
      launches: LAUNCHES,
      agentUser: AGENT,
      disk: { folders: [HOME, WORKSPACE, TMP], limitBytes: this.diskBytes },
      // The vendor may end a service with all that it has started.
      detach: true,
      confine: this.confine,
      main: this.node('supervisor/main.js'),
    };
    return this.command('supervisor/daemon.js', this.socket, GATEWAY_LINK, JSON.stringify(place));
  }

  /** Connects to the supervisor. */
  connection(): [string, ...string[]] {
    return this.command('supervisor/pipe.js', this.socket, String(PATIENCE_MS));
  }

  /** The files as a compressed archive. @param withNode with Node and its libraries */
  archive(withNode: boolean): Promise<Buffer> {
    let packed = this.packed.get(withNode);
    if (packed === undefined) this.packed.set(withNode, (packed = this.pack(withNode)));
    return packed;
  }

  /** What the installing script has to know. */
  get installation(): Readonly<Record<string, string>> {
    return { runtime: this.folder, loader: this.loader };
  }

  private node(program: string): string[] {
    const libraries = `${this.folder}/lib`;
    const loader = [`${libraries}/${this.loader}`, '--library-path', libraries];
    return [
      ...loader,
      `${this.folder}/bin/node`,
      ...NODE_FLAGS,
      `${this.folder}/dist/src/${program}`,
    ];
  }

  private async pack(withNode: boolean): Promise<Buffer> {
    const archive = pack();
    for (const { path, read, mode } of [...this.files, ...(withNode ? this.nodeFiles() : [])]) {
      archive.entry({ name: path, mode }, read());
    }
    archive.finalize();
    const pieces: Buffer[] = [];
    for await (const piece of archive as AsyncIterable<Buffer>) pieces.push(piece);
    return compress(Buffer.concat(pieces));
  }

  private nodeFiles(): BundledFile[] {
    const node = {
      path: 'bin/node',
      read: () => readFileSync(realpathSync(process.execPath)),
      mode: 0o555,
    };
    const libraries = sharedLibraries().map((path) => ({
      path: `lib/${basename(path)}`,
      read: () =>
        basename(path) === this.loader ? withoutPreload(readFileSync(path)) : readFileSync(path),
      mode: 0o555,
    }));
    return [node, ...libraries];
  }
}
