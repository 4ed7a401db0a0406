import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { readAptSources } from './apt-sources.js';

const run = promisify(execFile);

/** Public registries that their clients know by themselves. npm's and apt's are asked for: they are often mirrors. */
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

/** The hosts from which package managers install in sandboxes of this machine. */
export async function readPackageHosts(signal: AbortSignal): Promise<readonly string[]> {
  const sources = await readAptSources('/etc/apt');
  const urls = [...sources.flatMap((source) => source.uris), await npmRegistry(signal)];
  const hosts = urls.flatMap((url) => (URL.canParse(url) ? [new URL(url).hostname] : []));
  return [...new Set([...hosts, ...REGISTRIES])].filter((host) => host !== '');
}

/** @returns the registry's address, `''` where there is no npm to ask. */
async function npmRegistry(signal: AbortSignal): Promise<string> {
  try {
    const { stdout } = await run('npm', ['config', 'get', 'registry'], { signal, cwd: '/' });
    return stdout.trim();
  } catch {
    signal.throwIfAborted();
    return '';
  }
}
