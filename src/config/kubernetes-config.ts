import { resolve } from 'node:path';
import { ConfigError, type EnvironmentReader } from './parse.js';

/** The cluster, and what pods of sandboxes are made of. */
export interface KubernetesConfig {
  /** The path of the file with the credentials. Default: those of the pod that the service runs in. */
  kubeconfig: string | undefined;
  /** Default: the namespace of the credentials. */
  namespace: string | undefined;
  /** The image of this service. */
  supervisorImage: string;
  pullSecrets: readonly string[];
  storageClass: string | undefined;
  /** After so long without a turn, the pod of a sandbox ends. */
  idleSeconds: number;
  /** The pods of the gateway, by namespace and labels. Default: the addresses of GATEWAY_URL. */
  gatewayPods: { namespace: string; labels: Record<string, string> } | undefined;
}

const DEFAULT_IMAGE = 'agent-session-service:latest';
const NAME = /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/;
const LABEL = /^([\w./-]{1,317})=([\w.-]{0,63})$/;

/** @throws ConfigError if a part of it is not valid */
export function readKubernetes(read: EnvironmentReader): KubernetesConfig {
  const kubeconfig = read.text('KUBECONFIG');
  const namespace = read.text('KUBERNETES_NAMESPACE');
  if (namespace !== undefined && !NAME.test(namespace)) {
    throw new ConfigError('KUBERNETES_NAMESPACE', `must be the name of a namespace`);
  }
  return {
    kubeconfig: kubeconfig === undefined ? undefined : resolve(kubeconfig),
    namespace,
    supervisorImage: read.text('SANDBOX_SUPERVISOR_IMAGE') ?? DEFAULT_IMAGE,
    pullSecrets: words(read.text('SANDBOX_PULL_SECRETS')),
    storageClass: read.text('SANDBOX_STORAGE_CLASS'),
    idleSeconds: read.duration('SANDBOX_SUSPEND_AFTER', 600),
    gatewayPods: readPods(read),
  };
}

/** @throws ConfigError if what `SANDBOX_DRIVER=kubernetes` needs is missing */
export function requireKubernetesGateway({
  gateway,
}: {
  gateway: { url?: string | undefined };
}): void {
  if (gateway.url === undefined) {
    throw new ConfigError(
      'GATEWAY_URL',
      'must be set for SANDBOX_DRIVER=kubernetes: pods reach nothing but the gateway',
    );
  }
}

/** `namespace/label=value,label=value` */
function readPods(read: EnvironmentReader): KubernetesConfig['gatewayPods'] {
  const text = read.text('KUBERNETES_GATEWAY_PODS');
  if (text === undefined) return undefined;
  const slash = text.indexOf('/');
  const namespace = text.slice(0, Math.max(slash, 0));
  const labels = words(text.slice(slash + 1)).map((label) => LABEL.exec(label)?.slice(1));
  if (!NAME.test(namespace) || labels.length === 0 || labels.includes(undefined)) {
    throw new ConfigError(
      'KUBERNETES_GATEWAY_PODS',
      'must be a namespace and labels, as in agent-sessions/app=gateway,tier=egress',
    );
  }
  const entries = labels.flatMap((each) => (each === undefined ? [] : [each as [string, string]]));
  return { namespace, labels: Object.fromEntries(entries) };
}

function words(text: string | undefined): string[] {
  return (text ?? '').split(',').flatMap((word) => word.trim() || []);
}
