import { randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { KubernetesSandboxDriver } from '../../src/sandboxes/driver/kubernetes/kubernetes-sandbox-driver.js';
import type { KubernetesOptions } from '../../src/sandboxes/driver/kubernetes/options.js';
import type { KubeList, KubePod } from '../../src/sandboxes/driver/kubernetes/kube-objects.js';
import { describeWith } from '../support/requirements.js';
import { installKubernetes, type KubernetesInstallation } from './kubernetes-installations.js';

const signal = new AbortController().signal;
const OPEN = { mode: 'unrestricted', allowedHosts: [] } as const;

/** What an operator reads when a cluster is not suitable. */
describeWith(['a Kubernetes cluster'], 'a cluster that cannot be used', () => {
  let installation: KubernetesInstallation;
  /** Objects to remove again, by their paths. */
  const made: string[] = [];

  beforeAll(async () => {
    installation = await installKubernetes({ patienceMs: 5_000 });
  }, 60_000);

  afterAll(async () => {
    const { api, driver, dispose } = installation;
    for (const path of made) {
      await api.request({ method: 'DELETE', path, signal }).catch(() => undefined);
    }
    await driver.close();
    await dispose();
  }, 60_000);

  async function object(path: string, body: { metadata: { name: string } }): Promise<void> {
    await installation.api.request({ method: 'POST', path, body, signal });
    made.push(`${path}/${body.metadata.name}`);
  }

  /** Creates a sandbox with other options. @returns why that fails, when nothing of it is left */
  async function failureOf(more: Partial<KubernetesOptions>): Promise<string> {
    const driver = new KubernetesSandboxDriver({ ...installation.options, ...more });
    const sandboxId = randomUUID();
    try {
      await driver.create({ sandboxId, writableRoot: false, network: OPEN, signal });
    } catch (error) {
      expect(error).toMatchObject({ kind: 'unavailable' });
      return (error as Error).message;
    } finally {
      await driver.destroy({ sandboxId, signal });
      await driver.close();
    }
    return 'created';
  }

  it('names an image that cannot be pulled, and its setting', async () => {
    expect(await failureOf({ image: 'k8s.local/absent:1' })).toMatch(
      /^the image k8s\.local\/absent:1 of SANDBOX_IMAGE cannot be pulled/,
    );
    expect(await failureOf({ supervisorImage: 'k8s.local/absent:2' })).toMatch(
      /^the image k8s\.local\/absent:2 of SANDBOX_SUPERVISOR_IMAGE cannot be pulled/,
    );
  }, 240_000);

  it('names a RuntimeClass that does not exist', async () => {
    const message = await failureOf({ runtimeClass: 'absent-runtime' });
    expect(message).toMatch(/RuntimeClass of SANDBOX_RUNTIME: .*absent-runtime/);
  });

  it('says that no node takes pods', async () => {
    const { api } = installation;
    const { items } = await api.request<KubeList<KubePod>>({
      ...{ method: 'GET', path: '/api/v1/nodes', signal },
    });
    const cordon = async (unschedulable: boolean): Promise<void> => {
      for (const { metadata } of items) {
        await api.request({
          method: 'PATCH',
          path: `/api/v1/nodes/${metadata.name}`,
          contentType: 'application/merge-patch+json',
          body: { spec: { unschedulable } },
          signal,
        });
      }
    };
    await cordon(true);
    try {
      expect(await failureOf({})).toMatch(
        /^no node of the cluster can take the pod: .*unschedulable/,
      );
    } finally {
      await cordon(false);
    }
  });

  it('says that the network is open, and starts nothing', async () => {
    const {
      namespace = '',
      api,
      names,
      path,
    } = installation.options.namespace
      ? { ...installation, namespace: installation.options.namespace }
      : { ...installation };
    const name = `open-${randomUUID().slice(0, 8)}`;
    await object(`/apis/networking.k8s.io/v1/namespaces/${namespace}/networkpolicies`, {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata: { name },
      spec: {
        podSelector: { matchLabels: { 'agent-session/installation': names.installation } },
        policyTypes: ['Egress'],
        egress: [{}],
      },
    } as { metadata: { name: string } });
    const seen = new Set<string>();
    const watch = setInterval(() => {
      const query = { labelSelector: names.selector };
      api
        .request<KubeList<KubePod>>({ method: 'GET', path: `${path}/pods`, query, signal })
        .then(({ items }) => {
          for (const { status } of items) {
            for (const { name: container, state } of status?.containerStatuses ?? []) {
              if (state?.running !== undefined) seen.add(container);
            }
          }
        })
        .catch(() => undefined);
    }, 100);
    try {
      expect(await failureOf({})).toMatch(
        /^the cluster does not enforce network policies: .* was reached: use a network plugin/,
      );
    } finally {
      clearInterval(watch);
    }
    expect([...seen]).toEqual([]);
    const policy = made.pop() ?? '';
    await api.request({ method: 'DELETE', path: policy, signal });
  }, 120_000);

  it('says that a quota is exhausted', async () => {
    const { namespace = '' } = installation.options;
    const name = `quota-${randomUUID().slice(0, 8)}`;
    await object(`/api/v1/namespaces/${namespace}/resourcequotas`, {
      apiVersion: 'v1',
      kind: 'ResourceQuota',
      metadata: { name },
      spec: { hard: { persistentvolumeclaims: '0' } },
    } as { metadata: { name: string } });
    expect(await failureOf({})).toMatch(/^a quota of the namespace is exhausted.*exceeded quota/);
    await installation.api.request({ method: 'DELETE', path: made.pop() ?? '', signal });
  });

  it('says that there is no default StorageClass', async () => {
    const { api } = installation;
    const path = '/apis/storage.k8s.io/v1/storageclasses';
    const key = 'storageclass.kubernetes.io/is-default-class';
    const { items } = await api.request<KubeList<KubePod>>({ method: 'GET', path, signal });
    const defaults = items.filter(({ metadata }) => metadata.annotations?.[key] === 'true');
    const mark = async (value: string): Promise<void> => {
      for (const { metadata } of defaults) {
        await api.request({
          method: 'PATCH',
          path: `${path}/${metadata.name}`,
          contentType: 'application/merge-patch+json',
          body: { metadata: { annotations: { [key]: value } } },
          signal,
        });
      }
    };
    await mark('false');
    try {
      expect(await failureOf({})).toBe(
        'the cluster has no default StorageClass: make one the default, or set SANDBOX_STORAGE_CLASS',
      );
    } finally {
      await mark('true');
    }
  });

  it('lists the permissions that are missing', async () => {
    const { namespace = '', kubeconfig } = installation.options;
    const name = `nobody-${randomUUID().slice(0, 8)}`;
    const accounts = `/api/v1/namespaces/${namespace}/serviceaccounts`;
    await object(accounts, { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name } } as {
      metadata: { name: string };
    });
    const { status } = await installation.api.request<{ status: { token: string } }>({
      method: 'POST',
      path: `${accounts}/${name}/token`,
      body: { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} },
      signal,
    });
    const { server, ca } = installation.api.access;
    const folder = await mkdtemp(join(tmpdir(), 'kubeconfig-'));
    const path = join(folder, 'config');
    const cluster = { server, 'certificate-authority-data': ca?.toString('base64') };
    await writeFile(
      path,
      JSON.stringify({
        'current-context': 'c',
        contexts: [{ name: 'c', context: { cluster: 'c', user: 'u', namespace } }],
        clusters: [{ name: 'c', cluster }],
        users: [{ name: 'u', user: { token: status.token } }],
      }),
    );
    const options = { ...installation.options, kubeconfig: path };
    const driver = new KubernetesSandboxDriver(options);
    await expect(driver.preflight({ signal })).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringMatching(
        /^permissions are missing in the namespace .*: get pods, .*create pods\/exec/,
      ),
    });
    await driver.close();
    await rm(folder, { recursive: true });
    expect(kubeconfig).toBeDefined();
  });

  it('says that the API server does not answer, and where it was sought', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'kubeconfig-'));
    const path = join(folder, 'config');
    await writeFile(
      path,
      JSON.stringify({
        'current-context': 'c',
        contexts: [{ name: 'c', context: { cluster: 'c', user: 'u' } }],
        clusters: [{ name: 'c', cluster: { server: 'https://127.0.0.1:1' } }],
        users: [],
      }),
    );
    const driver = new KubernetesSandboxDriver({ ...installation.options, kubeconfig: path });
    await expect(driver.preflight({ signal })).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('127.0.0.1:1 does not answer (ECONNREFUSED)'),
    });
    await driver.close();
    await rm(folder, { recursive: true });
  });
});
