import { isIP } from 'node:net';
import { domainToASCII } from 'node:url';

/** `exact` matches the name alone, `subdomains` every strict subdomain of it and not the name itself. */
export interface HostPattern {
  kind: 'exact' | 'subdomains';
  /** Lower-case ASCII, without a trailing dot. */
  name: string;
}

/** Says in one sentence, fit for a client, why a text is no host pattern. */
export class HostPatternError extends Error {
  override readonly name = 'HostPatternError';
}

const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/;
/** What the WHATWG host parser, inet_aton and getaddrinfo take for the end of an IPv4 address, as in `127.1` and `0x7f.1`. */
const NUMERIC_LABEL = /^(\d+|0x[0-9a-f]*)$/;

/**
 * Brings a host name to the one form in which names are compared: lower-case ASCII (IDN as punycode), no trailing dot.
 * @returns `undefined` for what is no host name: IP literals in any notation, empty, over-long or illegal labels.
 */
export function normalizeHostName(text: string): string | undefined {
  // ASCII skips the IDN step: it would turn `0x7f.1` into an address and percent-decode.
  const ascii = /^[\x21-\x7e]*$/.test(text) ? text.toLowerCase() : domainToASCII(text);
  const name = ascii.endsWith('.') ? ascii.slice(0, -1) : ascii;
  if (name.length === 0 || name.length > 253 || isIP(name) !== 0) return undefined;
  const labels = name.split('.');
  if (!labels.every((label) => LABEL.test(label))) return undefined;
  return NUMERIC_LABEL.test(labels.at(-1) ?? '') ? undefined : name;
}

/**
 * Reads one entry of an allow-list: `api.example.com` or `*.example.com`.
 * @throws HostPatternError naming what is wrong.
 */
export function parseHostPattern(text: string): HostPattern {
  const shown = JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
  const fail = (why: string): never => {
    throw new HostPatternError(`${shown} is not a host pattern: ${why}`);
  };
  if (text === '') fail('it is empty');
  if (/\s/.test(text)) fail('it contains white space');
  if (text.includes('://')) fail('leave out the scheme');
  if (text.includes('@')) fail('leave out the user');
  if (/[/?#\\]/.test(text)) fail('leave out the path');
  if (text === '*') fail('to allow every host use the network type "unrestricted"');
  if (isIP(text.replace(/^\[(.*)\]$/, '$1')) !== 0) fail('an IP address is not a name');
  if (text.includes(':')) fail('leave out the port');

  const subdomains = text.startsWith('*.');
  const rest = subdomains ? text.slice(2) : text;
  if (rest.includes('*')) fail('a wildcard stands only for the first label, as in "*.example.com"');
  const name = normalizeHostName(rest);
  if (name === undefined) {
    const last = rest.toLowerCase().replace(/\.$/, '').split('.').at(-1) ?? '';
    return fail(
      NUMERIC_LABEL.test(last) ? 'an IP address is not a name' : 'it is not a valid host name',
    );
  }
  return { kind: subdomains ? 'subdomains' : 'exact', name };
}

/** The text that {@link parseHostPattern} reads back to the same pattern. */
export function formatHostPattern(pattern: HostPattern): string {
  return pattern.kind === 'subdomains' ? `*.${pattern.name}` : pattern.name;
}

/** Does one of the patterns allow the name? The name may have any case and a trailing dot; an IP literal never matches. */
export function hostMatches(patterns: readonly HostPattern[], host: string): boolean {
  const name = normalizeHostName(host);
  if (name === undefined) return false;
  return patterns.some((pattern) =>
    pattern.kind === 'exact' ? name === pattern.name : name.endsWith(`.${pattern.name}`),
  );
}
