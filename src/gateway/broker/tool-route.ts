import type { IncomingMessage } from 'node:http';
import type { Transform } from 'node:stream';
import type { GrantSeal, ToolGrant } from '../grants.js';
import { EndpointRewriter } from './endpoint-rewriter.js';
import {
  CREDENTIAL_HEADERS,
  Refusal,
  headerOf,
  type Admission,
  type CheckGrant,
  type Reply,
  type Route,
} from './route.js';

/** The header in which agent programs send the grant of a tool server. */
const GRANT_HEADER = 'x-session-grant';

/** The methods of MCP. The answer to another one, such as TRACE, could contain the secret headers. */
const METHODS = new Set(['GET', 'POST', 'DELETE']);

const PATH = /^\/mcp\/([\w-]+)(?:\/endpoint\/([\w-]+))?$/;

/**
 * Remote MCP servers with secret headers, as `/mcp/<number>`. With the transport `sse`, the server names the address for
 * messages in its first event. The gateway replaces it with one of its own, which has the server's path sealed in it.
 */
export class ToolRoute implements Route {
  constructor(
    private readonly check: CheckGrant,
    private readonly seal: GrantSeal,
  ) {}

  matches(path: string): boolean {
    return path.startsWith('/mcp/');
  }

  admit(request: IncomingMessage, sandbox: string | null): Admission {
    const path = (request.url ?? '').replace(/\?.*$/s, '');
    const [, number, endpoint] = PATH.exec(path) ?? [];
    if (number === undefined) throw new Refusal(404, 'There is no such tool server');
    const text = request.headers[GRANT_HEADER];
    if (typeof text !== 'string')
      throw new Refusal(401, `The header ${GRANT_HEADER} is missing`, { reason: 'missing' });
    const grant = this.check(text, 'mcp', sandbox);
    const { method = '' } = request;
    if (!METHODS.has(method))
      throw new Refusal(403, `The gateway does not forward ${method} to tool servers`, {
        reason: 'wrong_target',
        grant,
      });
    const url = endpoint === undefined ? new URL(grant.url) : this.endpointOf(grant, endpoint);
    const names = Object.keys(grant.headers).map((name) => name.toLowerCase());
    const values = Object.values(grant.headers);
    return {
      url,
      grant,
      drop: [GRANT_HEADER, ...CREDENTIAL_HEADERS],
      headers: {
        'accept-encoding': 'identity',
        ...Object.fromEntries(names.map((name, i) => [name, values[i] ?? ''])),
      },
      ...(grant.transport === 'sse' && {
        transform: (reply: Reply) => this.endpointRewriter(reply, grant, `/mcp/${number}`),
      }),
    };
  }

  describeRefusal(_request: IncomingMessage, _status: number, message: string) {
    const body = JSON.stringify({ error: { message } });
    return { headers: { 'Content-Type': 'application/json' }, body };
  }

  private endpointOf(grant: ToolGrant, sealed: string): URL {
    const target = this.seal.openText(sealed, contextOf(grant));
    if (target === undefined)
      throw new Refusal(403, 'The tool server has not named this endpoint', {
        reason: 'wrong_target',
        grant,
      });
    return new URL(target);
  }

  private endpointRewriter(reply: Reply, grant: ToolGrant, own: string): Transform[] {
    if (!/^text\/event-stream/i.test(headerOf(reply, 'content-type') ?? '')) return [];
    return [
      new EndpointRewriter((data) => {
        const server = new URL(grant.url);
        if (!URL.canParse(data, server.href)) return data;
        const target = new URL(data, server);
        // Anything else would send the secret headers to another server.
        if (target.origin !== server.origin) return data;
        return `${own}/endpoint/${this.seal.sealText(target.href, contextOf(grant))}`;
      }),
    ];
  }
}

function contextOf({ session, url }: ToolGrant): string {
  return `tool server endpoint ${session} ${url}`;
}
