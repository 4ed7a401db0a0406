import type { HostClaim } from './peek.js';

const REQUEST_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+) HTTP\/1\.[01]$/;
const HEADER_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):(.*)$/;
const PORT_SUFFIX = /:\d*$/;

/**
 * Reads the host from the head of an HTTP/1 request: its Host header, and the authority of an absolute target, which
 * has to be the same. Stricter than servers are: whatever two parsers could read in two ways names no host.
 */
export function readRequestHost(bytes: Buffer): HostClaim {
  const text = bytes.toString('latin1');
  const end = text.indexOf('\r\n\r\n');
  const [requestLine = '', ...headers] = text.slice(0, end === -1 ? undefined : end).split('\r\n');
  const lineComplete = end !== -1 || headers.length > 0;
  // Only HTTP begins with a method, so that other protocols are turned away at their first bytes.
  if (!(lineComplete ? REQUEST_LINE : /^[!-~]*( |$)/).test(requestLine)) return unnamed('not HTTP');
  if (end === -1) return { state: 'incomplete' };

  const [, method, target = ''] = REQUEST_LINE.exec(requestLine) ?? [];
  if (method === 'CONNECT') return unnamed('a request to be a proxy');
  const hosts: string[] = [];
  for (const line of headers) {
    const [, name, value = ''] = HEADER_LINE.exec(line) ?? [];
    if (name === undefined || /[\r\n\0]/.test(value)) return unnamed('a malformed header');
    if (name.toLowerCase() === 'host') hosts.push(value.trim().replace(PORT_SUFFIX, ''));
  }
  const [host, ...others] = hosts;
  if (host === undefined) return unnamed('no Host header');
  if (others.length > 0) return unnamed('several Host headers');
  if (!target.startsWith('/') && target !== '*') {
    const authority = /^http:\/\/([^/?#@\\]*)(?=$|[/?#])/i
      .exec(target)?.[1]
      ?.replace(PORT_SUFFIX, '');
    if (authority?.toLowerCase() !== host.toLowerCase())
      return unnamed('another host in the target');
  }
  return { state: 'named', host };
}

function unnamed(why: string): HostClaim {
  return { state: 'unnamed', why };
}
