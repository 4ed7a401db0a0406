import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import type { NpmProgram } from '../../npm-program.js';
import { packageSpec } from '../../npm-program.js';
import { SandboxError } from '../../sandbox-error.js';
import { publishOnce } from '../rootfs/publish-once.js';
import { runAsNobody, type Workbench } from './as-nobody.js';
import { readNpmSettings } from './npm-settings.js';

export interface EnsureProgramsOptions extends Workbench {
  /** Where program folders are kept. Made if missing. */
  dir: string;
  /** Installed together; at least one. */
  programs: readonly NpmProgram[];
  /** The environment in which npm is asked for the host's settings. Default: the service's own. */
  npmEnv?: Readonly<Record<string, string>>;
  signal: AbortSignal;
}

/** Counts up when the folder's layout changes. */
const FORMAT = 1;
const NPM_OPTIONS = [
  '--ignore-scripts',
  '--omit=dev',
  '--no-package-lock',
  '--no-audit',
  '--no-fund',
  '--no-update-notifier',
  '--loglevel=error',
  // Patient with a slow registry, not with one that is not there.
  '--fetch-retries=2',
  '--fetch-retry-mintimeout=500',
  '--fetch-retry-maxtimeout=4000',
];
/** Lines of npm's that only repeat others or point to a log. */
const NOISE = /^(code [A-Z]|errno |syscall |A complete log|404\s*$|at |$)|^npm (notice|warn)/;

/**
 * Installs programs from npm once, for all sandboxes of this machine, and finds them again later. A folder is named for
 * what is in it: `bin/` has the programs, everything can be read by everyone and is written by no one. No code of the
 * packages runs: only npm does, as a user without rights and with an environment that holds nothing of the service's.
 * @returns the absolute path of a complete folder, to be mounted read-only
 * @throws SandboxError `failed` with npm's complaint; the signal's reason if aborted
 */
export async function ensurePrograms(options: EnsureProgramsOptions): Promise<string> {
  const { dir, programs, signal } = options;
  return publishOnce({
    dir,
    name: folderName(programs),
    signal,
    build: ({ draft, signal: wanted }) => build({ ...options, draft, signal: wanted }),
  });
}

/** The name under which programs are kept: the first one's, and a digest of all that decides what is in the folder. */
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

/** npm, in the folder of tools or, where there is none, the service's own. */
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
