import { isIP } from 'node:net';
import { normalizeHostName } from './host-pattern.js';

export const MAX_URL_LENGTH = 2_048;

/** Matches the scheme and the authority, which is the part of a URL between the scheme and the path. */
const AUTHORITY = /^https?:\/\/([^/?#]*)/i;

/**
 * Checks a URL that programs in a sandbox will use. It must be `http` or `https` without user and password, because the
 * URL is shown to clients. Stricter than the WHATWG parser, which accepts forms that git and the agent programs parse
 * differently: blanks, missing or additional slashes, encoded host names.
 * @returns the problem in one sentence for the client; `undefined` if there is none.
 */
export function httpUrlProblem(text: string): string | undefined {
  if (text.length > MAX_URL_LENGTH) return `A URL has at most ${MAX_URL_LENGTH} characters`;
  if (/[\s\p{Cc}\\]/u.test(text)) return 'A URL must not contain blanks or backslashes';
  if (/%(?![0-9a-f]{2})/i.test(text)) return 'A URL must not contain a malformed percent encoding';
  const authority = AUTHORITY.exec(text)?.[1];
  if (authority === undefined) return 'Must be a URL that starts with http:// or https://';
  if (holdsUserInfo(text)) return 'A URL must not carry a user or a password';
  const namesHost =
    authority !== '' &&
    !authority.includes('%') &&
    URL.canParse(text) &&
    isHost(new URL(text).hostname);
  return namesHost ? undefined : 'A URL must name a host: a host name or an IP address';
}

/** Does the URL contain a user or a password, even an empty one? */
export function holdsUserInfo(text: string): boolean {
  return AUTHORITY.exec(text)?.[1]?.includes('@') ?? false;
}

/** The same URL with its scheme in lower case, because git accepts no other. */
export function asGitUrl(text: string): string {
  return text.replace(/^[^:]*/, (scheme) => scheme.toLowerCase());
}

function isHost(hostname: string): boolean {
  return isIP(hostname.replace(/^\[|\]$/g, '')) !== 0 || normalizeHostName(hostname) !== undefined;
}
