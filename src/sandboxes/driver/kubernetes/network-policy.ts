import { lookup } from 'node:dns/promises';
import { isIPv6 } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import type { ForbiddenAddress } from './inside/preparation.js';
import { type KubeApi, KubeError } from './kube-api.js';
import type { KubeMeta } from './kube-objects.js';
import { type KubernetesOptions, LABELS, type ObjectNames } from './options.js';

interface PolicyObject {
  metadata: KubeMeta;
  spec?: unknown;
}

/**
 * The policy that applies to all pods of the installation: nobody connects to them, and they connect to nothing but the
 * gateway. It is there before the first pod, and checked before each one.
 */
export class SandboxNetworkPolicy {
  /** @param path of the namespace's policies in the API */
  constructor(
    private readonly api: KubeApi,
    private readonly path: string,
    private readonly names: ObjectNames,
    private readonly gateway: KubernetesOptions['gateway'],
  ) {}

  /** Sees to it that the policy is there and is the wanted one. @throws KubeError, SandboxError */
  async ensure(signal: AbortSignal): Promise<void> {
    const spec = await this.spec();
    const name = this.names.installation;
    const path = `${this.path}/${name}`;
    const present = await this.api
      .request<PolicyObject>({ method: 'GET', path, signal })
      .catch(unlessMissing);
    if (present !== undefined && isDeepStrictEqual(present.spec, spec)) return;
    const metadata = { name, labels: { [LABELS.installation]: name } };
    const policy = { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy', metadata, spec };
    const body =
      present === undefined
        ? policy
        : {
            ...policy,
            metadata: { ...metadata, resourceVersion: present.metadata.resourceVersion },
          };
    const made = await this.api
      .request<PolicyObject>(
        present === undefined
          ? { method: 'POST', path: this.path, body, signal }
          : { method: 'PUT', path, body, signal },
      )
      .catch(async (error: unknown) => {
        // Another worker was faster.
        if (!(error instanceof KubeError) || error.status !== 409) throw error;
        return this.api.request<PolicyObject>({ method: 'GET', path, signal });
      });
    // Something in the cluster may change what is created there.
    if (isDeepStrictEqual(made.spec, spec)) return;
    throw new SandboxError(
      'unavailable',
      `the network policy ${name} is not the one that sandboxes need: something changes it`,
    );
  }

  private async spec(): Promise<object> {
    return {
      podSelector: { matchLabels: { [LABELS.installation]: this.names.installation } },
      policyTypes: ['Ingress', 'Egress'],
      ...(await this.egress()),
    };
  }

  /** An API server leaves out empty lists, so there are none. */
  private async egress(): Promise<{ egress?: object[] }> {
    const { gateway } = this;
    if (gateway === undefined) return {};
    const url = new URL(gateway.url);
    const { pods } = gateway;
    const to =
      pods === undefined
        ? (await addressesOf(url)).map((address) => ({
            ipBlock: { cidr: `${address}/${isIPv6(address) ? 128 : 32}` },
          }))
        : [
            {
              namespaceSelector: {
                matchLabels: { 'kubernetes.io/metadata.name': pods.namespace },
              },
              podSelector: { matchLabels: { ...pods.labels } },
            },
          ];
    return { egress: [{ ports: [{ protocol: 'TCP', port: portOf(url) }], to }] };
  }
}

/** The addresses of a host, sorted. @throws SandboxError `unavailable` if its name cannot be resolved now */
export async function addressesOf({ hostname }: URL): Promise<string[]> {
  const name = hostname.replace(/^\[|\]$/g, '');
  try {
    const found = await lookup(name, { all: true });
    return [...new Set(found.map(({ address }) => address))].toSorted();
  } catch (error) {
    const { code = 'unknown error' } = error as NodeJS.ErrnoException;
    throw new SandboxError('unavailable', `the name ${name} cannot be resolved (${code})`, {
      cause: error,
    });
  }
}

/** What no pod may reach: the API server, at all addresses of its name. */
export async function forbiddenAddresses(server: string): Promise<ForbiddenAddress[]> {
  const url = new URL(server);
  return (await addressesOf(url)).map((host) => ({ host, port: portOf(url) }));
}

function portOf({ port, protocol }: URL): number {
  return Number(port) || (protocol === 'https:' ? 443 : 80);
}

function unlessMissing(error: unknown): undefined {
  if (!(error instanceof KubeError) || error.status !== 404) throw error;
}
