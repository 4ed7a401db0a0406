// Other servers that are available from npm. They are no dependencies of the project because they are large and only
// needed for benchmarks.
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { npm, ROOT } from '../../scripts/lib/project.mjs';

const FOLDER = join(ROOT, 'node_modules', '.cache', 'bench-peers');

/** Installs only the package with the binary for this CPU, not the wrapper packages that select it. */
const PROGRAMS = {
  'sandbox-agent': {
    package: `@sandbox-agent/cli-linux-${process.arch}`,
    version: '0.4.2',
    entry: 'bin/sandbox-agent',
  },
  opencode: {
    // The baseline build also runs on processors without AVX2.
    package: `opencode-linux-${process.arch}${process.arch === 'x64' ? '-baseline' : ''}`,
    version: '1.18.33',
    entry: 'bin/opencode',
  },
};

/** Downloads the missing ones. */
export function installPeers(say) {
  const wanted = Object.keys(PROGRAMS).filter((name) => !existsSync(installed(name)));
  if (wanted.length === 0) return;
  const specs = wanted.map((name) => `${PROGRAMS[name].package}@${PROGRAMS[name].version}`);
  say(`Installing ${specs.join(' and ')} into ${FOLDER} …`);
  const flags = ['--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error'];
  npm(['install', '--prefix', FOLDER, ...flags, ...specs]);
  // One package normally does this in its install script.
  for (const name of wanted) chmodSync(installed(name), 0o755);
}

/** @returns the program that was installed for this, otherwise the one in the PATH. */
export function findPeer(name) {
  const paths = (process.env.PATH ?? '').split(delimiter).map((folder) => join(folder, name));
  return [installed(name), ...paths].find((path) => existsSync(path));
}

export function whyMissing(name) {
  const path = findPeer(name);
  if (path === undefined) return `not installed (npm run bench -- --peers)`;
  return spawnSync(path, ['--version']).status === 0 ? undefined : `${path} does not run here`;
}

function installed(name) {
  const program = PROGRAMS[name];
  return join(FOLDER, 'node_modules', ...program.package.split('/'), program.entry);
}
