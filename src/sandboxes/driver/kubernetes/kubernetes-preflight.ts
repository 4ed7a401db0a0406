import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { type KubeApi } from './kube-api.js';
import type { KubernetesOptions } from './options.js';
import { asSandboxError } from './pod-problems.js';
import type { Pods } from './pods.js';

/** How long a cached answer is good. */
const CACHE_MS = 5_000;
const REACH_MS = 15_000;
/** How long it is good that a sandbox could be made, and how long it is not tried again after it could not. */
const PROVEN_MS = 3_600_000;
const REFUTED_MS = 30_000;
const TRIAL_MS = 300_000;
/** How long a caller waits for the first sandbox. */
const WAIT_MS = 40_000;
/** A shutdown waits so long at most until it is removed. */
const REMOVE_MS = 20_000;

/** What the driver does in the namespace. */
const NEEDED: readonly (readonly [group: string, resource: string, verbs: readonly string[]])[] = [
  ['', 'pods', ['get', 'list', 'create', 'delete']],
  ['', 'persistentvolumeclaims', ['get', 'list', 'create', 'delete']],
  // A WebSocket is opened with GET, and some API servers check one, some the other.
  ['', 'pods/exec', ['get', 'create']],
  ['networking.k8s.io', 'networkpolicies', ['get', 'create', 'update']],
];

/** Whether the cluster and the gateway can be used now. */
export class KubernetesPreflight {
  private reached: { at: number; done: Promise<void> } | undefined;
  private readonly stop = new AbortController();
  private removal: Promise<void> | undefined;
  private tried: { at: number; done: Promise<void>; problem?: unknown } | undefined;

  /**
   * @param ensurePolicy sees to the network policy
   * @param pods makes a sandbox, which proves that the network is closed
   */
  constructor(
    private readonly api: KubeApi,
    private readonly namespace: string,
    private readonly gateway: KubernetesOptions['gateway'],
    private readonly ensurePolicy: (signal: AbortSignal) => Promise<void>,
    private readonly pods: Pods,
  ) {}

  /** @throws SandboxError `unavailable` with the reason if not */
  async run(signal: AbortSignal): Promise<void> {
    if (this.reached === undefined || Date.now() - this.reached.at > CACHE_MS) {
      const done = this.reach();
      this.reached = { at: Date.now(), done };
      done.catch(() => (this.reached = undefined));
    }
    await this.reached.done;
    await this.prove(signal);
  }

  /** Makes a sandbox once, and waits for it as long as the caller does. */
  private async prove(signal: AbortSignal): Promise<void> {
    const { tried } = this;
    const age = Date.now() - (tried?.at ?? 0);
    if (tried === undefined || age > (tried.problem === undefined ? PROVEN_MS : REFUTED_MS)) {
      const trial: NonNullable<typeof this.tried> = { at: Date.now(), done: this.makeOne() };
      trial.done.catch((error: unknown) => {
        trial.problem = error;
        trial.at = Date.now();
      });
      // What was proven before is good until it is refuted.
      if (tried === undefined || tried.problem !== undefined) this.tried = trial;
      else
        trial.done.then(
          () => (this.tried = trial),
          () => (this.tried = trial),
        );
    }
    const waited = new AbortController();
    const limit = AbortSignal.any([signal, waited.signal]);
    const late = delay(WAIT_MS, undefined, { signal: limit }).then(
      () => {
        throw new SandboxError('unavailable', 'the cluster is being checked: the first pod starts');
      },
      () => {
        throw new SandboxError('aborted', 'the call was aborted');
      },
    );
    late.catch(() => undefined);
    try {
      await Promise.race([this.tried?.done, late]);
    } finally {
      waited.abort();
    }
  }

  /**
   * Makes a sandbox, which proves that the cluster can be used and that the network is closed. It is removed while the
   * caller goes on.
   */
  private async makeOne(): Promise<void> {
    const sandboxId = randomUUID();
    try {
      const signal = AbortSignal.any([this.stop.signal, AbortSignal.timeout(TRIAL_MS)]);
      await this.pods.create({ sandboxId, writableRoot: false, signal });
    } finally {
      // If this fails, it is an orphan like others.
      this.removal = this.pods
        .destroy(sandboxId, AbortSignal.timeout(REMOVE_MS))
        .catch(() => undefined);
    }
  }

  /** Stops checking, and waits until what it has made is removed. */
  async close(): Promise<void> {
    this.stop.abort();
    await this.tried?.done.catch(() => undefined);
    await this.removal;
  }

  private async reach(): Promise<void> {
    const signal = AbortSignal.timeout(REACH_MS);
    try {
      await this.requirePermissions(signal);
      await this.ensurePolicy(signal);
    } catch (error) {
      if (!signal.aborted) throw asSandboxError(error);
      const message = `${this.api.host} does not answer within ${REACH_MS / 1000} seconds`;
      throw new SandboxError('unavailable', message, { cause: error });
    }
    const { remote } = this.gateway ?? {};
    await remote?.check(AbortSignal.timeout(REACH_MS)).catch((error: unknown) => {
      const message = `the gateway is not ready: ${(error as Error).message}`;
      throw new SandboxError('unavailable', message, { cause: error });
    });
  }

  private async requirePermissions(signal: AbortSignal): Promise<void> {
    const checks = NEEDED.flatMap(([group, name, verbs]) =>
      verbs.map(async (verb) => {
        const [resource, subresource] = name.split('/');
        const attributes = { namespace: this.namespace, group, resource, subresource, verb };
        const { status } = await this.api.request<{ status?: { allowed?: boolean } }>({
          method: 'POST',
          path: '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
          body: {
            apiVersion: 'authorization.k8s.io/v1',
            kind: 'SelfSubjectAccessReview',
            spec: { resourceAttributes: attributes },
          },
          signal,
          patienceMs: 2_000,
        });
        return status?.allowed === true ? [] : [`${verb} ${name}`];
      }),
    );
    const missing = (await Promise.all(checks)).flat();
    if (missing.length === 0) return;
    throw new SandboxError(
      'unavailable',
      `permissions are missing in the namespace ${this.namespace}: ${missing.join(', ')}; see the Role in deploy/kubernetes`,
    );
  }
}
