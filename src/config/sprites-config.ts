import { isIP } from 'node:net';
import { ConfigError, type EnvironmentReader } from './parse.js';

/** The account with Sprites. */
export interface SpritesConfig {
  token: string | undefined;
  /** Without a trailing slash. */
  baseUrl: string;
  /** The beginning of the names of all sprites. */
  prefix: string;
}

/** Names may have 63 characters, of which two ids take 46. */
const PREFIX = /^[a-z](?:[a-z0-9-]{0,14}[a-z0-9])?$/;

/** @throws ConfigError if a part of it is not valid */
export function readSprites(read: EnvironmentReader): SpritesConfig {
  const prefix = read.text('SPRITES_PREFIX') ?? 'session';
  if (!PREFIX.test(prefix)) {
    throw new ConfigError(
      'SPRITES_PREFIX',
      `must be at most 16 lower-case letters, digits and dashes, not "${prefix}"`,
    );
  }
  const baseUrl = read.url('SPRITES_BASE_URL', ['http', 'https']) ?? 'https://api.sprites.dev';
  return { token: read.text('SPRITES_TOKEN'), baseUrl: baseUrl.replace(/\/+$/, ''), prefix };
}

/** @throws ConfigError if what `SANDBOX_DRIVER=sprites` needs is missing, or cannot work with it */
export function requireToken(config: {
  sandbox: { sprites: SpritesConfig; warmPool: number };
  gateway: { url?: string | undefined };
}): void {
  if (config.sandbox.sprites.token === undefined) {
    throw new ConfigError('SPRITES_TOKEN', 'must be set for SANDBOX_DRIVER=sprites');
  }
  const { url } = config.gateway;
  const host = url === undefined ? '' : new URL(url).hostname.replace(/^\[|\]$/g, '');
  // The vendor's network policies know names only, and block all addresses that no allowed name has.
  if (isIP(host) !== 0 || host === 'localhost') {
    throw new ConfigError(
      'GATEWAY_URL',
      `must have a host name that sprites can resolve with SANDBOX_DRIVER=sprites, not ${host}`,
    );
  }
  if (config.sandbox.warmPool > 0 && url === undefined) {
    throw new ConfigError('WARM_POOL', 'needs GATEWAY_URL with SANDBOX_DRIVER=sprites');
  }
}
