import { setTimeout as delay } from 'node:timers/promises';
import { requireNotAborted, SandboxError } from '../../../supervisor/sandbox-error.js';
import type { Existence } from '../sandbox-driver.js';
import { type KubeApi, KubeError } from './kube-api.js';
import type { KubeList, KubePod, KubeVolumeClaim } from './kube-objects.js';
import { LABELS, type ObjectNames } from './options.js';
import { asSandboxError } from './pod-problems.js';

/** The pause between two looks at an object. */
export const POLL_MS = 120;
const DELETE_MS = 60_000;
const SHORT_MS = 5_000;
const PAGE = 500;

/** The pods and volumes of an installation in the API of the cluster. */
export class SandboxObjects {
  /** @param namespace the path of the namespace in the API */
  constructor(
    readonly api: KubeApi,
    readonly namespace: string,
    readonly names: ObjectNames,
  ) {}

  /** The pod of a sandbox; `undefined` if there is none. */
  pod(sandboxId: string, signal: AbortSignal): Promise<KubePod | undefined> {
    const path = `${this.namespace}/pods/${this.names.of(sandboxId)}`;
    return this.api.request<KubePod>({ method: 'GET', path, signal }).catch(unlessMissing);
  }

  /** The volume of a sandbox; `undefined` if there is none, or if it is being removed. */
  async volume(
    sandboxId: string,
    signal: AbortSignal,
    patienceMs?: number,
  ): Promise<KubeVolumeClaim | undefined> {
    const path = `${this.namespace}/persistentvolumeclaims/${this.names.of(sandboxId)}`;
    const patience = patienceMs === undefined ? {} : { patienceMs };
    const found = await this.api
      .request<KubeVolumeClaim>({ method: 'GET', path, signal, ...patience })
      .catch(unlessMissing);
    return found?.metadata.deletionTimestamp === undefined ? found : undefined;
  }

  /** @throws SandboxError `gone` if there is no such sandbox */
  async requireVolume(sandboxId: string, signal: AbortSignal): Promise<KubeVolumeClaim> {
    const found = await this.volume(sandboxId, signal);
    if (found === undefined) {
      throw new SandboxError('gone', 'the sandbox does not exist any more');
    }
    return found;
  }

  /** Removes the pod of a sandbox, and resolves when it is certainly gone. */
  async removePod(sandboxId: string, signal: AbortSignal): Promise<void> {
    const path = `${this.namespace}/pods/${this.names.of(sandboxId)}`;
    const pod = await this.pod(sandboxId, signal);
    if (pod === undefined) return;
    // Its containers have ended, so that nothing can go on running unseen.
    const query: Record<string, string> = isOver(pod) ? { gracePeriodSeconds: '0' } : {};
    await this.api.request({ method: 'DELETE', path, query, signal }).catch(unlessMissing);
    await this.untilGone(path, signal);
  }

  private async untilGone(path: string, signal: AbortSignal): Promise<void> {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(DELETE_MS)]);
    while (!limit.aborted) {
      const found = await this.api
        .request({ method: 'GET', path, signal: limit })
        .catch(unlessMissing);
      if (found === undefined) return;
      await delay(POLL_MS, undefined, { signal: limit }).catch(() => undefined);
    }
    requireNotAborted(signal);
    throw new SandboxError('unavailable', 'the sandbox is still being removed by Kubernetes');
  }

  /** Removes the volume of a sandbox and its pod. */
  async remove(sandboxId: string, signal: AbortSignal): Promise<void> {
    // From now on nobody makes a pod for it. Kubernetes removes the volume once the pod is gone.
    const path = `${this.namespace}/persistentvolumeclaims/${this.names.of(sandboxId)}`;
    await this.api.request({ method: 'DELETE', path, signal }).catch(unlessMissing);
    await this.removePod(sandboxId, signal);
    await this.untilGone(path, signal);
  }

  /** Whether there is a sandbox. `no` only if the API server has said so. */
  async exists(sandboxId: string, signal: AbortSignal): Promise<Existence> {
    try {
      return (await this.volume(sandboxId, signal, SHORT_MS)) === undefined ? 'no' : 'yes';
    } catch (error) {
      requireNotAborted(signal);
      if (error instanceof SandboxError && error.kind === 'aborted') throw error;
      return 'unknown';
    }
  }

  /** The ids of all sandboxes, also of those of which only a pod or a volume is left. */
  async list(signal: AbortSignal): Promise<string[]> {
    const found = new Set<string>();
    for (const kind of ['persistentvolumeclaims', 'pods']) {
      let token: string | undefined;
      do {
        const query = {
          labelSelector: this.names.selector,
          limit: String(PAGE),
          ...(token !== undefined && { continue: token }),
        };
        const page: KubeList<KubeVolumeClaim | KubePod> = await this.api
          .request<KubeList<KubeVolumeClaim | KubePod>>({
            method: 'GET',
            path: `${this.namespace}/${kind}`,
            query,
            signal,
          })
          .catch((error: unknown) => {
            throw asSandboxError(error);
          });
        for (const { metadata } of page.items) {
          const id = metadata.labels?.[LABELS.sandbox];
          if (id === undefined || metadata.name !== this.names.of(id)) continue;
          // Kubernetes itself completes what it has begun to remove.
          if (metadata.deletionTimestamp === undefined) found.add(id);
        }
        token = page.metadata?.continue || undefined;
      } while (token !== undefined);
    }
    return [...found];
  }
}

function isOver({ status }: KubePod): boolean {
  return status?.phase === 'Succeeded' || status?.phase === 'Failed';
}

/** Whether one of its containers has ended: it is useless then. */
export function hasEnded(pod: KubePod): boolean {
  const containers = pod.status?.containerStatuses ?? [];
  return isOver(pod) || containers.some(({ state }) => state?.terminated !== undefined);
}

/** Whether all its containers run. */
export function isRunning(pod: KubePod): boolean {
  if (pod.metadata.deletionTimestamp !== undefined) return false;
  const containers = pod.status?.containerStatuses ?? [];
  return containers.length > 1 && containers.every(({ state }) => state?.running !== undefined);
}

/** For `catch`: nothing is there. Other errors are translated. */
export function unlessMissing(error: unknown): undefined {
  if (error instanceof KubeError && error.status === 404) return undefined;
  throw asSandboxError(error);
}
