import { randomUUID } from 'node:crypto';
import { expect } from '@jest/globals';
import { clusterAccess } from '../../src/sandboxes/driver/kubernetes/cluster-access.js';
import { KubeApi } from '../../src/sandboxes/driver/kubernetes/kube-api.js';
import type { KubeList, KubePod } from '../../src/sandboxes/driver/kubernetes/kube-objects.js';
import { KubernetesSandboxDriver } from '../../src/sandboxes/driver/kubernetes/kubernetes-sandbox-driver.js';
import {
  type KubernetesOptions,
  ObjectNames,
} from '../../src/sandboxes/driver/kubernetes/options.js';
import { type DriverUnderTest, oneAfterTheOther } from '../contracts/sandbox-driver.contract.js';
import { TEST_LIMITS } from '../integration/sandboxes/local-installations.js';
import { prepareCluster } from './test-cluster.js';

export interface KubernetesInstallation extends DriverUnderTest {
  options: KubernetesOptions;
  names: ObjectNames;
  /** The path of the namespace in the API. */
  path: string;
  api: KubeApi;
}

/** Options of an installation that nobody else has, in a namespace of its own test file. */
export async function kubernetesOptions(
  more: Partial<KubernetesOptions> = {},
): Promise<KubernetesOptions & { name: string; namespace: string }> {
  const { namespace, image, supervisorImage } = await prepareCluster();
  const name = randomUUID();
  return {
    kubeconfig: process.env['KUBECONFIG'],
    namespace,
    image,
    supervisorImage,
    limits: TEST_LIMITS,
    idleSeconds: 600,
    installation: () => Promise.resolve(name),
    ...more,
    name,
  };
}

/** The driver in the test's own process, on the cluster of KUBECONFIG. */
export async function installKubernetes(
  more: Partial<KubernetesOptions> = {},
): Promise<KubernetesInstallation> {
  const { name, ...options } = await kubernetesOptions(more);
  const names = new ObjectNames(name);
  const path = `/api/v1/namespaces/${options.namespace}`;
  const api = new KubeApi(clusterAccess(options.kubeconfig));
  return {
    driver: new KubernetesSandboxDriver(options),
    isolated: true,
    options,
    names,
    path,
    api,
    again: oneAfterTheOther(() => new KubernetesSandboxDriver(options)),
    dispose: async () => {
      const left = await leftovers(api, path, names);
      const policy = `${path.replace('/api/v1', '/apis/networking.k8s.io/v1')}/networkpolicies/${names.installation}`;
      const signal = AbortSignal.timeout(10_000);
      await api.request({ method: 'DELETE', path: policy, signal }).catch(() => undefined);
      api.close();
      expect(left).toEqual([]);
    },
  };
}

async function leftovers(api: KubeApi, path: string, names: ObjectNames): Promise<string[]> {
  const found = await Promise.all(
    ['pods', 'persistentvolumeclaims'].map(async (kind) => {
      const query = { labelSelector: names.selector };
      const signal = AbortSignal.timeout(10_000);
      const options = { method: 'GET', path: `${path}/${kind}`, query, signal } as const;
      const { items } = await api.request<KubeList<KubePod>>(options);
      return items.map(({ metadata }) => `${kind}/${metadata.name}`);
    }),
  );
  return found.flat();
}
