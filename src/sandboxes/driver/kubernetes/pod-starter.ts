import { setTimeout as delay } from 'node:timers/promises';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { KubeError } from './kube-api.js';
import type { KubeEvent, KubeList, KubePod } from './kube-objects.js';
import { forbiddenAddresses, type SandboxNetworkPolicy } from './network-policy.js';
import { type KubernetesOptions, WRITABLE_ROOT } from './options.js';
import { asSandboxError, type PodProblem, problemInEvents, problemOf } from './pod-problems.js';
import { podOf } from './pod-spec.js';
import { hasEnded, isRunning, POLL_MS, type SandboxObjects } from './sandbox-objects.js';

/** A problem that may pass is reported after so long. A cluster that adds nodes by itself takes minutes for that. */
const PATIENCE_MS = 180_000;
/** After this, events are read for what the pod waits for. */
const EVENTS_MS = 8_000;
const DELETE_MS = 60_000;

/** Starts pods, and says why one does not start. */
export class PodStarter {
  constructor(
    private readonly objects: SandboxObjects,
    private readonly options: KubernetesOptions,
    private readonly policy: SandboxNetworkPolicy,
  ) {}

  /** Starts the pod, unless it runs, and waits until it does. */
  async start(sandboxId: string, signal: AbortSignal): Promise<void> {
    const volume = await this.objects.requireVolume(sandboxId, signal);
    const writableRoot = volume.metadata.annotations?.[WRITABLE_ROOT] === 'true';
    const began = Date.now();
    let problemSince: number | undefined;
    let replaces = false;
    for (;;) {
      requireInTime(signal);
      const pod = await this.objects.pod(sandboxId, signal);
      if (pod === undefined) {
        // A volume that is being removed gets no other pod.
        await this.objects.requireVolume(sandboxId, signal);
        await this.createPod(sandboxId, writableRoot, signal);
        await this.objects.requireVolume(sandboxId, signal).catch(async (error: unknown) => {
          // The sandbox was removed in the meantime.
          await this.objects.removePod(sandboxId, AbortSignal.timeout(DELETE_MS));
          throw error;
        });
        this.objects.api.stats.notePod(replaces ? 'replaced' : 'created');
        continue;
      }
      if (isRunning(pod)) break;
      if (pod.metadata.deletionTimestamp !== undefined) {
        // Another pod with this name is only made once this one is certainly gone.
      } else if (hasEnded(pod)) {
        const problem = problemOf(pod, this.images);
        await this.objects.removePod(sandboxId, signal);
        if (problem !== undefined) this.giveUp(problem);
        replaces = true;
        continue;
      } else {
        const problem = await this.problem(pod, began, signal);
        if (problem === undefined) problemSince = undefined;
        else {
          problemSince ??= Date.now();
          if (!problem.mayPass || Date.now() - problemSince > this.patienceMs) {
            await this.objects.removePod(sandboxId, signal);
            this.giveUp(problem);
          }
        }
      }
      await delay(POLL_MS, undefined, { signal }).catch(() => undefined);
    }
    requireInTime(signal);
  }

  private giveUp({ message }: PodProblem): never {
    this.objects.api.stats.notePod('failed');
    throw new SandboxError('unavailable', message);
  }

  private get patienceMs(): number {
    return this.options.patienceMs ?? PATIENCE_MS;
  }

  private get images(): { agent: string; supervisor: string } {
    return { agent: this.options.image, supervisor: this.options.supervisorImage };
  }

  private async createPod(
    sandboxId: string,
    writableRoot: boolean,
    signal: AbortSignal,
  ): Promise<void> {
    try {
      // Nothing starts before its network is closed.
      await this.policy.ensure(signal);
      const forbidden = await forbiddenAddresses(this.objects.api.access.server);
      const body = podOf(this.options, this.objects.names, { sandboxId, writableRoot, forbidden });
      await this.objects.api.request({
        method: 'POST',
        path: `${this.objects.namespace}/pods`,
        body,
        signal,
      });
    } catch (error) {
      if (error instanceof KubeError && error.reason === 'AlreadyExists') return;
      this.objects.api.stats.notePod('failed');
      throw asSandboxError(error);
    }
  }

  private async problem(
    pod: KubePod,
    began: number,
    signal: AbortSignal,
  ): Promise<PodProblem | undefined> {
    const problem = problemOf(pod, this.images);
    if (problem !== undefined || Date.now() - began < EVENTS_MS) return problem;
    return this.problemInEvents(pod.metadata.name, signal);
  }

  private async problemInEvents(
    name: string,
    signal: AbortSignal,
  ): Promise<PodProblem | undefined> {
    const query = { fieldSelector: `involvedObject.name=${name}`, limit: '50' };
    const path = `${this.objects.namespace}/events`;
    try {
      const { items } = await this.objects.api.request<KubeList<KubeEvent>>({
        ...{ method: 'GET', path, query, signal, patienceMs: 0 },
      });
      return problemInEvents(items);
    } catch {
      // Only the reason is unknown then.
      return undefined;
    }
  }
}

function requireInTime(signal: AbortSignal): void {
  if (signal.aborted) throw new SandboxError('unavailable', 'the pod does not start in time');
}
