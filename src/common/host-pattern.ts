import { isIP } from 'node:net';
import { domainToASCII } from 'node:url';

/** `exact` matches the name alone, `subdomains` every strict subdomain of it and not the name itself. */
export interface HostPattern {
  kind: 'exact' | 'subdomains';
  /** Lower-case ASCII, without a trailing dot. */
  name: string;
}

/** Says in one sentence why a text is no host pattern. The message is for clients. */
export class HostPatternError extends Error {
  override readonly name = 'HostPatternError';
}

const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/;
/**
 * A last label that makes the WHATWG host parser, inet_aton and getaddrinfo parse an IPv4 address: `127.1`, `0x7f.1`.
 */
const NUMERIC_LABEL = /^(\d+|0x[0-9a-f]*)$/;

/**
 * Normalizes a host name for comparison: lower-case ASCII (IDN as punycode), no trailing dot.
 * @returns `undefined` if it is no host name: an IP literal in any notation, or an empty, over-long or illegal label.
 */
export function normalizeHostName(text: string): string | undefined {
  // ASCII names skip domainToASCII, which would turn `0x7f.1` into an address and decode percent-encoding.
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

/** The inverse of {@link parseHostPattern}. */
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

/** Is there a name that matches both patterns? */
export function patternsOverlap(a: HostPattern, b: HostPattern): boolean {
  if (a.kind === 'exact') return hostMatches([b], a.name);
  if (b.kind === 'exact') return hostMatches([a], b.name);
  return a.name === b.name || hostMatches([a], b.name) || hostMatches([b], a.name);
}

/** A host pattern, with a port if one is given, as in `nexus.corp.example:8081`. */
export interface HostAndPort {
  host: HostPattern;
  port?: number;
}

/** @throws HostPatternError naming what is wrong. */
export function parseHostAndPort(text: string): HostAndPort {
  const [, name = text, digits] = /^([^:]*|\[.*\]):(\d+)$/.exec(text) ?? [];
  const host = parseHostPattern(name);
  if (digits === undefined) return { host };
  const port = Number(digits);
  if (port >= 1 && port <= 65_535) return { host, port };
  throw new HostPatternError(`${JSON.stringify(text)} has no valid port`);
}
