import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { clusterAccess } from '../../src/sandboxes/driver/kubernetes/cluster-access.js';
import { KubeApi, KubeError } from '../../src/sandboxes/driver/kubernetes/kube-api.js';

const run = promisify(execFile);
/** The namespace of the tests, unless KUBERNETES_NAMESPACE names another one. */
const NAMESPACE = 'agent-session-tests';
const IMAGE = 'k8s.local/sandbox:bookworm';

export interface TestCluster {
  namespace: string;
  image: string;
  supervisorImage: string;
}

let prepared: Promise<TestCluster> | undefined;

/**
 * The cluster of KUBECONFIG with a namespace for tests that enforces Pod Security "restricted". The image of this build
 * is loaded with the command KUBERNETES_LOAD_IMAGE, which gets the path of an archive, unless SANDBOX_SUPERVISOR_IMAGE
 * names one that the cluster has. SANDBOX_IMAGE needs bash, git and procps.
 */
export function prepareCluster(): Promise<TestCluster> {
  prepared ??= prepare();
  return prepared;
}

async function prepare(): Promise<TestCluster> {
  const namespace = process.env['KUBERNETES_NAMESPACE'] ?? NAMESPACE;
  const api = new KubeApi(clusterAccess(process.env['KUBECONFIG']));
  const labels = { 'pod-security.kubernetes.io/enforce': 'restricted' };
  const body = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace, labels } };
  const signal = AbortSignal.timeout(30_000);
  await api
    .request({ method: 'POST', path: '/api/v1/namespaces', body, signal })
    .catch((error: unknown) => {
      if (!(error instanceof KubeError) || error.status !== 409) throw error;
    });
  api.close();
  return {
    namespace,
    image: process.env['SANDBOX_IMAGE'] ?? IMAGE,
    supervisorImage: process.env['SANDBOX_SUPERVISOR_IMAGE'] ?? (await loadImage()),
  };
}

async function loadImage(): Promise<string> {
  const command = process.env['KUBERNETES_LOAD_IMAGE'];
  if (command === undefined) {
    throw new Error('set KUBERNETES_LOAD_IMAGE or SANDBOX_SUPERVISOR_IMAGE');
  }
  const folder = await mkdtemp(join(tmpdir(), 'kubernetes-image-'));
  try {
    const archive = join(folder, 'image.tar');
    const { stdout } = await run(process.execPath, ['scripts/kubernetes-image.mjs', archive]);
    const [program = '', ...args] = command.split(' ');
    await run(program, [...args, archive]);
    return stdout.trim();
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
