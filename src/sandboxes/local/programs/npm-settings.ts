import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** What says from where and through what npm gets packages. Credentials are not among them. */
const CARRIED = ['registry', 'proxy', 'https-proxy', 'noproxy', 'cafile', 'ca', 'strict-ssl'];

/**
 * The host's own way to the registry, as variables for an npm that sees nothing else of the host's configuration.
 * @param npm the command that runs npm
 * @param env what that npm sees; default all that the service does
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
