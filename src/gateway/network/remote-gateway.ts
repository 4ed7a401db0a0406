import { lookup } from 'node:dns/promises';
import { request as requestWithTls } from 'node:https';
import { request } from 'node:http';
import type { Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { GrantSeal } from '../grants.js';
import { dialGateway, type NetworkGateway } from './dial-gateway.js';
import { sandboxIdentity } from './identity.js';
import { trusting } from './trust.js';

const CHECK_MS = 5_000;
const MAX_SHOWN = 200;

export interface RemoteGatewayOptions {
  /** Where sandboxes reach the gateways: one of them, whichever answers. */
  url: string;
  /** Where workers reach every gateway: all addresses of this name. Default: the same. */
  workersUrl?: string | undefined;
  grantKeys: readonly string[];
  /** Certificates to trust besides the system's, as PEM. */
  certificates?: readonly string[] | undefined;
}

/** The gateways that run as services of their own (`APP_ROLE=gateway`), for drivers whose sandboxes are elsewhere. */
export class RemoteGateway {
  private readonly seal: GrantSeal;

  constructor(private readonly options: RemoteGatewayOptions) {
    this.seal = new GrantSeal(options.grantKeys);
  }

  /** What the relay of a sandbox needs to connect. Has the secret of the sandbox. */
  linkOf(sandboxId: string): NetworkGateway {
    const { url, certificates } = this.options;
    return { url, identity: sandboxIdentity(this.seal, sandboxId), certificates };
  }

  /** The addresses of all gateways. @throws the system's error if they are unknown now */
  async addresses(): Promise<readonly string[]> {
    const { hostname } = new URL(this.workersUrl);
    const found = await lookup(hostname.replace(/^\[|\]$/g, ''), { all: true });
    return found.map(({ address }) => address);
  }

  /** Connects to one of the gateways, to read its usage. @throws Error if it does not answer */
  connect(address: string, signal: AbortSignal): Promise<Socket> {
    const { certificates } = this.options;
    const limit = AbortSignal.any([signal, AbortSignal.timeout(CHECK_MS)]);
    return dialGateway({ url: this.workersUrl, address, certificates }, limit);
  }

  /** Whether a gateway is ready to serve sandboxes. @throws Error with the reason if it is not */
  async check(signal: AbortSignal): Promise<void> {
    const url = new URL('/readyz', this.options.url);
    const limit = AbortSignal.any([signal, AbortSignal.timeout(CHECK_MS)]);
    const { status, body } = await get(url, this.options.certificates, limit);
    if (status !== 200) throw new Error(`${url.host} answers ${status}: ${body}`);
  }

  private get workersUrl(): string {
    return this.options.workersUrl ?? this.options.url;
  }
}

function get(
  url: URL,
  certificates: readonly string[] | undefined,
  signal: AbortSignal,
): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const options = { signal, agent: false as const, secureContext: trusting(certificates) };
    const sent = (url.protocol === 'https:' ? requestWithTls : request)(url, options);
    sent.once('error', reject);
    sent.once('response', (response) => {
      text(response).then(
        (body) => resolve({ status: response.statusCode ?? 0, body: body.slice(0, MAX_SHOWN) }),
        reject,
      );
    });
    sent.end();
  });
}
