import { readConfiguredFile } from '../common/configured-file.js';
import { ConfigError, type EnvironmentReader } from './parse.js';

const NAME = 'DATABASE_URL';
/** The parameters of the address that name files, which the client of the database reads whole. */
const FILES = ['sslrootcert', 'sslcert', 'sslkey'];

/**
 * Reads the address of the database. What its client would only refuse on first use is found here. No message has a part
 * of the address that may be a password.
 * @throws ConfigError if it is not valid
 */
export function readDatabaseUrl(read: EnvironmentReader): string | undefined {
  const text = read.url(NAME, ['postgres', 'postgresql']);
  if (text === undefined) return undefined;
  const { username, password, pathname, searchParams } = new URL(text);
  for (const [part, value] of Object.entries({ user: username, password, database: pathname })) {
    try {
      decodeURIComponent(value);
    } catch {
      throw new ConfigError(NAME, `has a "%" in its ${part}: write it as "%25"`);
    }
  }
  for (const parameter of FILES) {
    const path = searchParams.get(parameter);
    if (path === null || path === '') continue;
    try {
      readConfiguredFile(path);
    } catch (error) {
      throw new ConfigError(NAME, `${parameter}: ${(error as Error).message}`);
    }
  }
  return text;
}
