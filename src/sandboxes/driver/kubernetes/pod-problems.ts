import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { OPEN_NETWORK } from './inside/preparation.js';
import { KubeError } from './kube-api.js';
import type { KubeContainerStatus, KubeEvent, KubePod } from './kube-objects.js';
import { PREPARE } from './pod-spec.js';

const MAX_SHOWN = 300;
/** Waiting for these reasons does not end by itself. */
const IMAGE_REASONS = new Set([
  'ErrImagePull',
  'ImagePullBackOff',
  'ErrImageNeverPull',
  'InvalidImageName',
  'ImageInspectError',
  'RegistryUnavailable',
]);
const CONTAINER_REASONS = new Set([
  'CreateContainerConfigError',
  'CreateContainerError',
  'RunContainerError',
]);

/** Why a pod does not start. */
export interface PodProblem {
  message: string;
  /** Whether it may start later without a change of the cluster or the configuration. */
  mayPass: boolean;
}

/** What a caller of the driver gets instead of the API server's errors: the cause, and what to do. */
export function asSandboxError(error: unknown): unknown {
  if (!(error instanceof KubeError)) return error;
  const { status, message, isTemporary } = error;
  const cause = { cause: error };
  const unavailable = (text: string) => new SandboxError('unavailable', text, cause);
  if (status === 401) {
    return unavailable('Kubernetes does not accept the credentials: check KUBECONFIG');
  }
  if (/exceeded quota|must specify (?:limits|requests)|maximum .* usage per/i.test(message)) {
    return unavailable(
      `a quota of the namespace is exhausted, raise it or remove sandboxes: ${short(message)}`,
    );
  }
  if (/violates PodSecurity/i.test(message)) {
    return unavailable(
      `the namespace does not admit the sandboxes' pods, which need Pod Security "restricted" or less: ${short(message)}`,
    );
  }
  if (/RuntimeClass|runtimeclass/.test(message)) {
    return unavailable(
      `the cluster does not have the RuntimeClass of SANDBOX_RUNTIME: ${short(message)}`,
    );
  }
  if (status === 403) {
    return unavailable(
      `a permission is missing in the cluster, see the Role in deploy/kubernetes: ${short(message)}`,
    );
  }
  if (status === 404 && /namespaces? /.test(message)) {
    return unavailable(`create the namespace or set KUBERNETES_NAMESPACE: ${short(message)}`);
  }
  if (isTemporary || status === 404 || status === 409) {
    return unavailable(`Kubernetes answers ${status}: ${short(message)}`);
  }
  return new SandboxError('failed', `Kubernetes answers ${status}: ${short(message)}`, cause);
}

/** Why a pod does not run yet, if that needs somebody's help; otherwise `undefined`. */
export function problemOf(
  pod: KubePod,
  images: { agent: string; supervisor: string },
): PodProblem | undefined {
  const { status = {} } = pod;
  const { initContainerStatuses: inits = [], containerStatuses: others = [] } = status;
  const prepared = inits.find(({ name }) => name === PREPARE)?.state?.terminated;
  if (prepared?.exitCode === OPEN_NETWORK) {
    const message = `${prepared.message ?? 'the network is open'}: use a network plugin that enforces NetworkPolicy, such as Calico or Cilium`;
    return { message, mayPass: false };
  }
  if (prepared !== undefined && prepared.exitCode !== 0) {
    const why = prepared.message ?? prepared.reason ?? `exit code ${prepared.exitCode}`;
    return { message: `the pod could not be prepared: ${short(why)}`, mayPass: true };
  }
  const unscheduled = status.conditions?.find(
    ({ type, status: is, reason }) =>
      type === 'PodScheduled' && is === 'False' && reason === 'Unschedulable',
  );
  if (unscheduled !== undefined) {
    const message = `no node of the cluster can take the pod: ${short(unscheduled.message ?? '')}`;
    return { message, mayPass: true };
  }
  return [...inits, ...others].map((each) => waitingProblem(each, images)).find(Boolean);
}

/** The reason in events about a pod or a volume, which are the only place that some problems are told. */
export function problemInEvents(events: readonly KubeEvent[]): PodProblem | undefined {
  const warnings = events.filter(({ type }) => type === 'Warning');
  const message = warnings.at(-1)?.message;
  if (message === undefined) {
    const waits = events.find(({ reason }) => reason === 'FailedBinding');
    return waits && { message: `the volume waits: ${short(waits.message ?? '')}`, mayPass: true };
  }
  const isRuntime = /runtime handler|RuntimeHandler|no runtime for/i.test(message);
  const what = isRuntime
    ? 'the nodes do not have the runtime of SANDBOX_RUNTIME'
    : 'Kubernetes says';
  return { message: `${what}: ${short(message)}`, mayPass: true };
}

function waitingProblem(
  { name, state }: KubeContainerStatus,
  images: { agent: string; supervisor: string },
): PodProblem | undefined {
  const { reason = '', message = '' } = state?.waiting ?? {};
  if (IMAGE_REASONS.has(reason)) {
    const [setting, image] =
      name === 'agent'
        ? ['SANDBOX_IMAGE', images.agent]
        : ['SANDBOX_SUPERVISOR_IMAGE', images.supervisor];
    return {
      message: `the image ${image} of ${setting} cannot be pulled (${reason}): ${short(message)}`,
      mayPass: false,
    };
  }
  if (!CONTAINER_REASONS.has(reason)) return undefined;
  return {
    message: `the container ${name} does not start: ${short(message || reason)}`,
    mayPass: true,
  };
}

function short(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim().slice(0, MAX_SHOWN);
}
