/**
 * Installs the agent programs at the versions that the service pins, without running install scripts. Run in the build of
 * the image. Arguments: the module with the pins, the folder to install into, the folder for links.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , pins, folder, bin] = process.argv;
const programs = Object.values(await import(pathToFileURL(pins).href));
const options = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
execFileSync(
  'npm',
  [
    ['install', '--prefix', folder, ...options],
    programs.map(({ package: name, version }) => `${name}@${version}`),
  ].flat(),
  { stdio: 'inherit' },
);
for (const { bin: name, package: from, version, entries } of programs) {
  const entry = entries
    .map((path) => join(folder, 'node_modules', path.replaceAll('{arch}', process.arch)))
    .find((path) => existsSync(path));
  if (entry === undefined) throw new Error(`${from}@${version} has no program for ${process.arch}`);
  chmodSync(entry, 0o755);
  symlinkSync(entry, join(bin, name));
}
