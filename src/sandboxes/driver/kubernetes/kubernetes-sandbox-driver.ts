import { randomUUID } from 'node:crypto';
import type { Duplex } from 'node:stream';
import type { ExportedMetric } from '../../../gateway/broker/broker-stats.js';
import type { FileCall } from '../../../supervisor/files/file-call.js';
import { readPackageHosts } from '../../../supervisor/package-hosts.js';
import { packFiles } from '../../../supervisor/packed-files.js';
import type { Item } from '../../../supervisor/protocol/frames.js';
import { BROKER } from '../../../supervisor/relay/listener-plan.js';
import { requireId, requireNotAborted, SandboxError } from '../../../supervisor/sandbox-error.js';
import { HOME, WORKSPACE } from '../../../supervisor/sandbox-options.js';
import { installPrograms } from '../npm-programs.js';
import { RemoteLaunches } from '../remote-launches.js';
import type {
  CreateSandboxOptions,
  DiskLimit,
  Existence,
  GatewayAccess,
  LaunchOptions,
  LaunchRef,
  LimitReport,
  NetworkPolicy,
  ProvideProgramsOptions,
  RunScriptOptions,
  SandboxDriver,
  SandboxFile,
  SandboxLayout,
  SandboxRef,
  ScriptResult,
  SpoolEvent,
} from '../sandbox-driver.js';
import { clusterAccess } from './cluster-access.js';
import { KubeApi } from './kube-api.js';
import type { KubeStats } from './kube-stats.js';
import { KubernetesPreflight } from './kubernetes-preflight.js';
import { SandboxNetworkPolicy } from './network-policy.js';
import { type KubernetesOptions, ObjectNames } from './options.js';
import { agentEnvironment, launchRequest, scriptRequest } from './pod-launches.js';
import { PodStarter } from './pod-starter.js';
import { Pods } from './pods.js';
import { SandboxObjects } from './sandbox-objects.js';
import { SupervisorLink } from './supervisor-link.js';

const GATEWAY_MS = 10_000;
/**
 * How long a supervisor may take to kill a launch before its pod is removed, which ends the other launches as lost. A
 * pod that has ended must first be started again.
 */
const KILL_MS = 10_000;

/** The parts that need the installation's id. */
interface Installation {
  objects: SandboxObjects;
  pods: Pods;
  link: SupervisorLink;
  remote: RemoteLaunches;
  preflight: KubernetesPreflight;
}

/**
 * Sandboxes as pods of a Kubernetes cluster, each with a volume. A pod ends when it is idle; the volume stays, and the
 * next turn gets another pod on it. Every worker reaches every pod, through the API server.
 *
 * Limitations beyond those in the port: nothing in a pod is ever root, so setup scripts run as the agent. The disk is
 * counted; the volume is a hard limit above that, where the storage class enforces its size. Processes are not limited
 * but by the kubelet. A launch whose pod is removed, for example because its node is drained, ends as lost.
 */
export class KubernetesSandboxDriver implements SandboxDriver {
  readonly name = 'kubernetes';
  private made: Promise<Installation> | undefined;
  private stats: KubeStats | undefined;

  constructor(private readonly options: KubernetesOptions) {}

  layout(_sandboxId: string): SandboxLayout {
    return { home: HOME, workspace: WORKSPACE };
  }

  async preflight({ signal }: { signal: AbortSignal }): Promise<void> {
    requireNotAborted(signal);
    const { preflight } = await this.installation();
    await preflight.run(signal);
  }

  async limits(): Promise<LimitReport> {
    const cpu = this.options.cpus === undefined ? 'shared' : 'hard';
    return { memory: 'hard', processes: 'unlimited', cpu, disk: 'monitored' };
  }

  async diskLimit(): Promise<DiskLimit> {
    return { kind: 'monitored', by: 'the shim in each pod' };
  }

  async create(options: CreateSandboxOptions): Promise<void> {
    const { network, writableRoot, signal } = options;
    requireNotAborted(signal);
    const sandboxId = requireId(options.sandboxId);
    const { pods, link } = await this.installation();
    await pods.create({ sandboxId, writableRoot, signal });
    await link.arrange(sandboxId, network, signal);
  }

  /** Those of the worker: an agent could change what its own pod would answer. */
  async packageHosts({ signal }: SandboxRef): Promise<readonly string[]> {
    return readPackageHosts(signal);
  }

  async restrictNetwork(options: SandboxRef & { network: NetworkPolicy }): Promise<void> {
    const { network, signal } = options;
    const sandboxId = requireId(options.sandboxId);
    const { link } = await this.installation();
    await link.arrange(sandboxId, network, signal);
  }

  async writeFiles(options: SandboxRef & { files: readonly SandboxFile[] }): Promise<void> {
    const { signal } = options;
    const sandboxId = requireId(options.sandboxId);
    const files = packFiles(options.files, [HOME, WORKSPACE]);
    const { remote } = await this.installation();
    await remote.supervisor(sandboxId).write({ files, home: HOME, signal });
  }

  async *files(options: SandboxRef & FileCall): AsyncGenerator<Item, void, undefined> {
    const sandboxId = requireId(options.sandboxId);
    requireNotAborted(options.signal);
    const { remote } = await this.installation();
    yield* remote.supervisor(sandboxId).files({ ...options, roots: this.layout(sandboxId) });
  }

  async runScript({
    script,
    env = {},
    signal,
    ...options
  }: RunScriptOptions): Promise<ScriptResult> {
    const sandboxId = requireId(options.sandboxId);
    return this.script(sandboxId, script, env, signal);
  }

  async providePrograms(options: ProvideProgramsOptions): Promise<void> {
    const { programs, network, signal, onSharedWork } = options;
    const sandboxId = requireId(options.sandboxId);
    const { remote, link } = await this.installation();
    const names = programs.map(({ bin }) => bin);
    const has = await remote
      .supervisor(sandboxId)
      .hasPrograms({ names, environment: agentEnvironment(), signal });
    if (has) return;
    onSharedWork?.(`Installing ${names.join(' and ')}`);
    const allowedHosts = [...network.allowedHosts, ...(await readPackageHosts(signal))];
    await link.arrange(sandboxId, { ...network, allowedHosts }, signal);
    try {
      const missing = 'SANDBOX_IMAGE has neither PROGRAMS nor npm to install it with';
      const script = installPrograms(programs, missing, null);
      const { exitCode, outputTail } = await this.script(sandboxId, script, {}, signal);
      if (exitCode !== 0) throw new SandboxError('failed', outputTail.trim());
    } finally {
      // Scripts of the session may follow.
      await link.arrange(sandboxId, network, AbortSignal.timeout(60_000));
      onSharedWork?.(null);
    }
  }

  async gateway(): Promise<GatewayAccess> {
    const isMissing = this.options.gateway === undefined;
    return { url: BROKER.url, identifies: true, isMissing };
  }

  metrics(): readonly ExportedMetric[] {
    return this.stats?.export() ?? [];
  }

  async gatewayAddresses(): Promise<readonly string[]> {
    return (await this.options.gateway?.remote?.addresses()) ?? [];
  }

  async connectGateway(address = ''): Promise<Duplex> {
    const remote = this.options.gateway?.remote;
    if (remote === undefined) throw new Error('there is no gateway: set GATEWAY_URL');
    return remote.connect(address, AbortSignal.timeout(GATEWAY_MS));
  }

  async launch(options: LaunchOptions): Promise<void> {
    const { signal } = options;
    requireNotAborted(signal);
    const sandboxId = requireId(options.sandboxId);
    const launchId = requireId(options.launchId);
    const { remote } = await this.installation();
    const request = launchRequest(options, this.options.limits);
    await remote.supervisor(sandboxId).launch({ launchId, request, signal });
  }

  async *follow(
    options: LaunchRef & { offset: number },
  ): AsyncGenerator<SpoolEvent, void, undefined> {
    requireId(options.launchId);
    const { remote } = await this.installation();
    yield* remote.supervisor(requireId(options.sandboxId)).follow(options);
  }

  async kill(options: LaunchRef): Promise<void> {
    requireId(options.launchId);
    requireId(options.sandboxId);
    const { remote } = await this.installation();
    await remote.kill(options).catch(ignoreGone);
  }

  async discardSpool(options: LaunchRef): Promise<void> {
    requireId(options.launchId);
    const { remote } = await this.installation();
    await remote.supervisor(requireId(options.sandboxId)).discard(options).catch(ignoreGone);
  }

  async exists({ sandboxId, signal }: SandboxRef): Promise<Existence> {
    requireId(sandboxId);
    requireNotAborted(signal);
    const { objects } = await this.installation();
    return objects.exists(sandboxId, signal);
  }

  async destroy({ sandboxId, signal }: SandboxRef): Promise<void> {
    requireId(sandboxId);
    const { pods, remote } = await this.installation();
    await remote.forget(sandboxId);
    await pods.destroy(sandboxId, signal);
  }

  async list({ signal }: { signal: AbortSignal }): Promise<string[]> {
    const { objects } = await this.installation();
    return objects.list(signal);
  }

  async close(): Promise<void> {
    const made = await this.made?.catch(() => undefined);
    await made?.remote.close();
    await made?.preflight.close();
    made?.objects.api.close();
  }

  private async script(
    sandboxId: string,
    script: string,
    env: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<ScriptResult> {
    const { remote } = await this.installation();
    const launchId = randomUUID();
    const request = scriptRequest(launchId, script, env, this.options.limits);
    try {
      return await remote.supervisor(sandboxId).run({ launchId, request, signal });
    } catch (error) {
      // A script must not outlive the one who waits for it, also if only the connection has broken.
      await remote.kill({ sandboxId, launchId }).catch(() => undefined);
      throw error;
    }
  }

  private installation(): Promise<Installation> {
    this.made ??= this.make().catch((error: unknown) => {
      this.made = undefined;
      throw error;
    });
    return this.made;
  }

  private async make(): Promise<Installation> {
    const { options } = this;
    const access = clusterAccess(options.kubeconfig);
    const names = new ObjectNames(await options.installation());
    const namespace = options.namespace ?? access.namespace;
    const api = new KubeApi(access);
    this.stats = api.stats;
    const policies = `/apis/networking.k8s.io/v1/namespaces/${namespace}/networkpolicies`;
    const policy = new SandboxNetworkPolicy(api, policies, names, options.gateway);
    const objects = new SandboxObjects(api, `/api/v1/namespaces/${namespace}`, names);
    const pods = new Pods(objects, new PodStarter(objects, options, policy), options);
    const link = new SupervisorLink(pods, options);
    const stop = (sandboxId: string) => pods.stop(sandboxId, AbortSignal.timeout(60_000));
    const connect = (sandboxId: string) => link.connect(sandboxId);
    return {
      objects,
      pods,
      link,
      remote: new RemoteLaunches({ connect, stop, killMs: KILL_MS }, options.unknownStates),
      preflight: new KubernetesPreflight(
        api,
        namespace,
        options.gateway,
        (signal) => policy.ensure(signal),
        pods,
      ),
    };
  }
}

function ignoreGone(error: unknown): void {
  if (!(error instanceof SandboxError && error.kind === 'gone')) throw error;
}
