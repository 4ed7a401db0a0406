import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { existsSync } from 'node:fs';
import { join, dirname } from 'node:path';
import type { Host } from './host.js';
import type { Launcher } from './launcher/launcher.js';
import { createHash } from 'node:crypto';
import { chmod, mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { type NpmProgram, packageSpec } from '../sandbox-driver.js';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { publishOnce } from '../../../common/publish-once.js';
import type { LocalSandboxOptions } from './options.js';
import { runAsNobody, type Workbench } from './workbench.js';

/** The settings for npm's registry and proxies that are passed on. Credentials are not among them. */
const CARRIED = ['registry', 'proxy', 'https-proxy', 'noproxy', 'cafile', 'ca', 'strict-ssl'];

/**
 * Reads the host's registry settings, as variables for an npm that sees nothing else of the host's configuration.
 * @param npm the command that runs npm
 * @param env the environment of that npm; default the service's own
 */
export async function readNpmSettings(
  npm: readonly [string, ...string[]],
  env: Readonly<Record<string, string>> | undefined,
  signal: AbortSignal,
): Promise<Record<string, string>> {
  const [program, ...first] = npm;
  const { stdout } = await promisify(execFile)(program, [...first, 'config', 'list', '--json'], {
    cwd: '/',
    env,
    signal,
    maxBuffer: 2 ** 22,
  });
  const settings = JSON.parse(stdout) as Record<string, unknown>;
  return Object.fromEntries(
    CARRIED.flatMap((name) => {
      const value = settings[name];
      const text = Array.isArray(value) ? value.join('\n\n') : value;
      if (typeof text !== 'string' && typeof text !== 'boolean') return [];
      return text === '' ? [] : [[`npm_config_${name.replaceAll('-', '_')}`, String(text)]];
    }),
  );
}

export interface EnsureProgramsOptions extends Workbench {
  /** The parent of program folders. Made if missing. */
  dir: string;
  /** The programs to install together; at least one. */
  programs: readonly NpmProgram[];
  /** The environment in which npm is asked for the host's settings. Default: the service's own. */
  npmEnv?: Readonly<Record<string, string>>;
  signal: AbortSignal;
  /** Called if the programs have to be installed first. */
  onProgress?: () => void;
}

/** Increase it when the folder's layout changes. */
const FORMAT = 1;
const NPM_OPTIONS = [
  '--ignore-scripts',
  '--omit=dev',
  '--no-package-lock',
  '--no-audit',
  '--no-fund',
  '--no-update-notifier',
  '--loglevel=error',
  // Waits for a slow registry, but not for one that does not answer.
  '--fetch-retries=2',
  '--fetch-retry-mintimeout=500',
  '--fetch-retry-maxtimeout=4000',
];
/** Lines of npm's output that only repeat others or point to a log. */
const NOISE = /^(code [A-Z]|errno |syscall |A complete log|404\s*$|at |$)|^npm (notice|warn)/;

/**
 * Installs programs from npm once, for all sandboxes of this machine, and finds them again later. A folder's name
 * identifies its contents. `bin/` has the programs; everyone can read the files and nobody can write them. Only npm
 * runs, and no code of the packages: as an unprivileged user, with nothing of the service's environment.
 * @returns the absolute path of a complete folder, to be mounted read-only
 * @throws SandboxError `failed` with npm's complaint; the signal's reason if aborted
 */
export async function ensurePrograms(options: EnsureProgramsOptions): Promise<string> {
  const { dir, programs, signal, onProgress } = options;
  return publishOnce({
    dir,
    name: folderName(programs),
    signal,
    ...(onProgress && { onProgress }),
    build: ({ draft, signal: wanted }) => build({ ...options, draft, signal: wanted }),
  });
}

/** The folder's name: that of the first program, and a digest of everything that determines the contents. */
export function folderName(programs: readonly NpmProgram[]): string {
  const [main] = programs;
  if (main === undefined) throw new Error('no programs to install');
  const digest = createHash('sha256')
    .update(JSON.stringify([FORMAT, process.arch, programs]))
    .digest('hex')
    .slice(0, 12);
  return `${main.bin}-${main.version}-${digest}`;
}

async function build(options: EnsureProgramsOptions & { draft: string }): Promise<void> {
  const { draft, programs, signal } = options;
  const npm = [
    options.nodePath,
    '--use-system-ca',
    join(npmFolder(options.toolsDir), 'bin/npm-cli.js'),
  ] as const;
  const settings = await readNpmSettings(npm, options.npmEnv, signal);
  const work = join(draft, 'work');
  await mkdir(work);
  await writeFile(join(work, 'package.json'), '{"private":true}\n');
  const { exitCode, output } = await runAsNobody({
    ...options,
    folder: work,
    command: ({ node, tools, folder }) => [
      node,
      '--use-system-ca',
      join(npmFolder(tools), 'bin/npm-cli.js'),
      'install',
      '--prefix',
      folder,
      ...NPM_OPTIONS,
      ...programs.map(packageSpec),
    ],
    env: (folder) => ({
      ...settings,
      HOME: folder,
      npm_config_cache: join(folder, '.npm'),
      npm_config_userconfig: join(folder, '.npmrc'),
    }),
  });
  const what = programs.map(packageSpec).join(' and ');
  if (exitCode !== 0) {
    throw new SandboxError('failed', `${what} could not be installed: ${complaint(output)}`);
  }
  for (const name of ['.npm', '.npmrc', 'package.json']) {
    await rm(join(work, name), { recursive: true, force: true });
  }
  await mkdir(join(draft, 'bin'));
  for (const program of programs) {
    const entry = program.entries
      .map((path) => join('work/node_modules', path.replaceAll('{arch}', process.arch)))
      .find((path) => existsSync(join(draft, path)));
    if (entry === undefined) {
      throw new SandboxError(
        'failed',
        `${packageSpec(program)} has no program for this machine (${process.arch})`,
      );
    }
    await chmod(join(draft, entry), 0o555);
    await symlink(join('..', entry), join(draft, 'bin', program.bin));
  }
}

/** The folder of npm: in the tools or, if there are none, the service's own. */
function npmFolder(tools: string | null): string {
  return tools === null
    ? dirname(createRequire(import.meta.url).resolve('npm/package.json'))
    : join(tools, 'lib/node_modules/npm');
}

function complaint(output: string): string {
  const lines = output.split('\n').map((line) => line.replace(/^npm error ?/, '').trim());
  const telling = lines.filter((line) => !NOISE.test(line));
  return telling.slice(0, 3).join(' ').slice(0, 300) || 'npm ended without a word';
}

/** The programs for sandboxes, installed once and shared by all of them. */
export class ProgramStore {
  /** @param user the kernel user that installs if the service is root; `null` for the service's own */
  constructor(
    private readonly host: Host,
    private readonly launcher: Launcher,
    private readonly options: LocalSandboxOptions,
    private readonly user: () => number | null,
  ) {}

  /** The folder of the programs, which are installed first if missing. `null` for no programs. */
  async folder(
    programs: readonly NpmProgram[] | undefined,
    signal: AbortSignal,
    onProgress?: () => void,
  ): Promise<string | null> {
    if (programs === undefined) return null;
    const { stateDir, programsDir, nodePath, toolsDir, npmEnv } = this.options;
    return ensurePrograms({
      dir: programsDir ?? join(stateDir, '.programs'),
      programs,
      signal,
      ...(onProgress && { onProgress }),
      host: this.host,
      launcher: this.launcher,
      user: this.user(),
      nodePath: nodePath ?? process.execPath,
      toolsDir: toolsDir ?? null,
      ...(npmEnv === undefined ? {} : { npmEnv }),
    });
  }
}
