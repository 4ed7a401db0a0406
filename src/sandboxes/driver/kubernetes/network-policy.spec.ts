import { describe, expect, it } from '@jest/globals';
import { type KubeApi, KubeError, type KubeRequest } from './kube-api.js';
import { forbiddenAddresses, SandboxNetworkPolicy } from './network-policy.js';
import { type GatewayPods, ObjectNames } from './options.js';

const signal = new AbortController().signal;
const names = new ObjectNames('an installation');
const gateway = (pods?: GatewayPods) => ({ url: 'http://127.0.0.1:8081', pods });

/** An API server with one object. */
class OneObject {
  readonly written: KubeRequest[] = [];
  present: { metadata: object; spec: unknown } | undefined;
  /** What it stores instead of what it is sent. */
  change = (spec: unknown): unknown => spec;

  readonly request = async (options: KubeRequest): Promise<unknown> => {
    if (options.method === 'GET') {
      if (this.present === undefined) throw new KubeError(404, 'NotFound', 'not found');
      return this.present;
    }
    this.written.push(options);
    const { metadata, spec } = options.body as NonNullable<typeof this.present>;
    this.present = { metadata: { ...metadata, resourceVersion: '7' }, spec: this.change(spec) };
    return this.present;
  };

  policy(options: ReturnType<typeof gateway> | undefined): SandboxNetworkPolicy {
    return new SandboxNetworkPolicy(this as unknown as KubeApi, '/policies', names, options);
  }
}

describe('the network policy of all sandboxes', () => {
  it('closes everything without a gateway', async () => {
    const server = new OneObject();
    await server.policy(undefined).ensure(signal);
    expect(server.present?.spec).toEqual({
      podSelector: { matchLabels: { 'agent-session/installation': names.installation } },
      policyTypes: ['Ingress', 'Egress'],
    });
  });

  it('opens the port of the gateway, by its pods or its addresses', async () => {
    const server = new OneObject();
    await server.policy(gateway()).ensure(signal);
    expect(server.present?.spec).toMatchObject({
      egress: [
        { ports: [{ protocol: 'TCP', port: 8081 }], to: [{ ipBlock: { cidr: '127.0.0.1/32' } }] },
      ],
    });
    await server.policy(gateway({ namespace: 'ours', labels: { app: 'gateway' } })).ensure(signal);
    expect(server.present?.spec).toMatchObject({
      egress: [
        {
          to: [
            {
              namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'ours' } },
              podSelector: { matchLabels: { app: 'gateway' } },
            },
          ],
        },
      ],
    });
  });

  it('is written once, and again when somebody has changed it', async () => {
    const server = new OneObject();
    const policy = server.policy(gateway());
    await policy.ensure(signal);
    await policy.ensure(signal);
    expect(server.written.map(({ method }) => method)).toEqual(['POST']);
    if (server.present !== undefined) server.present.spec = { podSelector: {}, egress: [{}] };
    await policy.ensure(signal);
    expect(server.written.map(({ method }) => method)).toEqual(['POST', 'PUT']);
    expect(server.written[1]?.body).toMatchObject({ metadata: { resourceVersion: '7' } });
  });

  it('is refused if the cluster stores another one', async () => {
    const server = new OneObject();
    server.change = (spec) => ({ ...(spec as object), egress: [{}] });
    await expect(server.policy(undefined).ensure(signal)).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('something changes it'),
    });
  });
});

describe('the addresses that no pod may reach', () => {
  it.each([
    ['https://10.1.2.3:6443', [{ host: '10.1.2.3', port: 6443 }]],
    ['https://[fd00::1]', [{ host: 'fd00::1', port: 443 }]],
  ])('has the address of %s', async (server, addresses) => {
    expect(await forbiddenAddresses(server)).toEqual(addresses);
  });

  it('has all addresses of a name', async () => {
    const addresses = await forbiddenAddresses('https://localhost:6443');
    expect(addresses).toContainEqual({ host: '127.0.0.1', port: 6443 });
  });

  it('is never empty because a name cannot be resolved', async () => {
    await expect(forbiddenAddresses('https://absent.invalid:6443')).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringMatching(/^the name absent\.invalid cannot be resolved/),
    });
  });
});
