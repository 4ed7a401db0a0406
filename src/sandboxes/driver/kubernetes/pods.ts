import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { requireNotAborted, SandboxError } from '../../../supervisor/sandbox-error.js';
import { openExec } from './exec-stream.js';
import { KubeError } from './kube-api.js';
import type { KubeVolumeClaim } from './kube-objects.js';
import { type KubernetesOptions, WRITABLE_ROOT } from './options.js';
import { asSandboxError } from './pod-problems.js';
import type { PodStarter } from './pod-starter.js';
import { CONNECT, SUPERVISOR, volumeClaim } from './pod-spec.js';
import { POLL_MS, type SandboxObjects } from './sandbox-objects.js';

/** How long a pod may take to start, images to be pulled included. */
const START_MS = 300_000;
const MOST_KNOWN = 10_000;

/** The pods and volumes of an installation: a sandbox is its volume, and has a pod while it is used. */
export class Pods {
  /** Sandboxes whose pod ran when it was last seen. */
  private readonly running = new Set<string>();
  private readonly starting = new Map<string, { done: Promise<void>; stop: AbortController }>();

  constructor(
    private readonly objects: SandboxObjects,
    private readonly starter: PodStarter,
    private readonly options: Pick<KubernetesOptions, 'limits' | 'storageClass'>,
  ) {}

  /** Makes the volume of a sandbox unless it is there, and its pod. */
  async create(options: {
    sandboxId: string;
    writableRoot: boolean;
    signal: AbortSignal;
  }): Promise<void> {
    const { sandboxId, writableRoot, signal } = options;
    const body = volumeClaim(this.options, {
      name: this.objects.names.of(sandboxId),
      labels: this.objects.names.labels(sandboxId),
      ...(writableRoot && { annotations: { [WRITABLE_ROOT]: 'true' } }),
    });
    const path = `${this.objects.namespace}/persistentvolumeclaims`;
    for (;;) {
      const made = await this.objects.api
        .request<KubeVolumeClaim>({ method: 'POST', path, body, signal })
        .catch((error: unknown) => {
          if (error instanceof KubeError && error.reason === 'AlreadyExists') return undefined;
          throw asSandboxError(error);
        });
      if (made !== undefined) {
        if (made.spec?.storageClassName === undefined) {
          await this.destroy(sandboxId, signal);
          throw new SandboxError(
            'unavailable',
            'the cluster has no default StorageClass: make one the default, or set SANDBOX_STORAGE_CLASS',
          );
        }
        break;
      }
      if ((await this.objects.volume(sandboxId, signal)) !== undefined) break;
      // The one that is being removed keeps its name until its pod is gone.
      await delay(POLL_MS, undefined, { signal }).catch(() => undefined);
    }
    await this.ensure(sandboxId, signal);
  }

  /**
   * Sees to it that the sandbox's pod runs. If it has ended, for example because it was idle or its node was drained,
   * another one takes over the volume.
   * @throws SandboxError `gone` if there is no such sandbox
   */
  async ensure(sandboxId: string, signal: AbortSignal): Promise<void> {
    let start = this.starting.get(sandboxId);
    if (start === undefined) {
      // The callers that wait for it do not end it for each other.
      const stop = new AbortController();
      const limit = AbortSignal.any([stop.signal, AbortSignal.timeout(START_MS)]);
      const done = this.start(sandboxId, limit).finally(() => this.starting.delete(sandboxId));
      done.catch(() => undefined);
      start = { done, stop };
      this.starting.set(sandboxId, start);
    }
    const aborted = Promise.withResolvers<never>();
    const abort = (): void => aborted.reject(new SandboxError('aborted', 'the call was aborted'));
    signal.addEventListener('abort', abort, { once: true });
    try {
      requireNotAborted(signal);
      await Promise.race([start.done, aborted.promise]);
    } finally {
      signal.removeEventListener('abort', abort);
      aborted.promise.catch(() => undefined);
    }
  }

  /** Connects to the supervisor. The pod is started for it if it does not run. */
  async connect(sandboxId: string, signal: AbortSignal): Promise<Duplex> {
    if (!this.running.has(sandboxId)) await this.ensure(sandboxId, signal);
    try {
      return this.watched(sandboxId, await this.exec(sandboxId));
    } catch (error) {
      if (!(error instanceof KubeError)) throw error;
    }
    // The pod has ended, or its container has.
    this.running.delete(sandboxId);
    await this.ensure(sandboxId, signal);
    try {
      return this.watched(sandboxId, await this.exec(sandboxId));
    } catch (error) {
      throw asSandboxError(error);
    }
  }

  /** Ends all processes of a sandbox. Its volume stays, and the next connection starts another pod. */
  async stop(sandboxId: string, signal: AbortSignal): Promise<void> {
    this.running.delete(sandboxId);
    await this.objects.removePod(sandboxId, signal);
  }

  /** Removes the volume and the pod. */
  async destroy(sandboxId: string, signal: AbortSignal): Promise<void> {
    this.running.delete(sandboxId);
    const start = this.starting.get(sandboxId);
    start?.stop.abort();
    await start?.done.catch(() => undefined);
    await this.objects.remove(sandboxId, signal);
  }

  private async start(sandboxId: string, signal: AbortSignal): Promise<void> {
    await this.starter.start(sandboxId, signal);
    if (this.running.size >= MOST_KNOWN) this.running.clear();
    this.running.add(sandboxId);
  }

  private watched(sandboxId: string, stream: Duplex): Duplex {
    // It may have ended with its pod. The next connection finds out.
    return stream.once('close', () => this.running.delete(sandboxId));
  }

  private exec(sandboxId: string): Promise<Duplex> {
    const path = `${this.objects.namespace}/pods/${this.objects.names.of(sandboxId)}`;
    return openExec(this.objects.api, path, SUPERVISOR, CONNECT);
  }
}
