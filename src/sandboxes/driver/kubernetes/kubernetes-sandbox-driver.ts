import { randomUUID } from 'node:crypto';
import type { Duplex } from 'node:stream';
import type { ExportedMetric } from '../../../gateway/broker/broker-stats.js';
import type { LaunchRequest } from '../../../supervisor/launch-request.js';
import { readPackageHosts } from '../../../supervisor/package-hosts.js';
import { requireId, requireNotAborted } from '../../../supervisor/sandbox-error.js';
import { provideProgramsInside } from '../programs-inside.js';
import { RemoteLaunches } from '../remote-launches.js';
import { type RemoteParts, RemoteSandboxDriver } from '../remote-sandbox-driver.js';
import type {
  CreateSandboxOptions,
  DiskLimit,
  Existence,
  GatewayAccess,
  LaunchOptions,
  LimitReport,
  NetworkPolicy,
  ProvideProgramsOptions,
  RunScriptOptions,
  SandboxRef,
  ScriptResult,
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
interface Parts extends RemoteParts {
  objects: SandboxObjects;
  pods: Pods;
  link: SupervisorLink;
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
export class KubernetesSandboxDriver extends RemoteSandboxDriver<Parts> {
  readonly name = 'kubernetes';
  private stats: KubeStats | undefined;

  constructor(private readonly options: KubernetesOptions) {
    super();
  }

  async preflight({ signal }: { signal: AbortSignal }): Promise<void> {
    requireNotAborted(signal);
    const { preflight } = await this.parts();
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
    const { pods, link } = await this.parts();
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
    const { link } = await this.parts();
    await link.arrange(sandboxId, network, signal);
  }

  async runScript(options: RunScriptOptions): Promise<ScriptResult> {
    const { script, env = {}, signal } = options;
    return this.script(requireId(options.sandboxId), script, env, signal);
  }

  async providePrograms(options: ProvideProgramsOptions): Promise<void> {
    const { signal } = options;
    const sandboxId = requireId(options.sandboxId);
    const environment = agentEnvironment();
    await this.ask(signal, ({ remote, link }) =>
      provideProgramsInside(options, {
        hasPrograms: (names) =>
          remote.supervisor(sandboxId).hasPrograms({ names, environment, signal }),
        packageHosts: () => readPackageHosts(signal),
        restrict: (network, limit) => link.arrange(sandboxId, network, limit),
        run: (script) => this.script(sandboxId, script, {}, signal),
        withoutNpm: 'SANDBOX_IMAGE has neither PROGRAMS nor npm to install it with',
        inPath: null,
      }),
    );
  }

  override async gateway(): Promise<GatewayAccess> {
    return { ...(await super.gateway()), isMissing: this.options.gateway === undefined };
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

  async exists({ sandboxId, signal }: SandboxRef): Promise<Existence> {
    requireId(sandboxId);
    requireNotAborted(signal);
    const { objects } = await this.parts();
    return objects.exists(sandboxId, signal);
  }

  async destroy({ sandboxId, signal }: SandboxRef): Promise<void> {
    requireId(sandboxId);
    const { pods, remote } = await this.parts();
    await remote.forget(sandboxId);
    await pods.destroy(sandboxId, signal);
  }

  async list({ signal }: { signal: AbortSignal }): Promise<string[]> {
    const { objects } = await this.parts();
    return objects.list(signal);
  }

  protected override launchRequest(options: LaunchOptions): LaunchRequest {
    return launchRequest(options, this.options.limits);
  }

  protected override async release({ preflight, objects }: Parts): Promise<void> {
    await preflight.close();
    objects.api.close();
  }

  private async script(
    sandboxId: string,
    script: string,
    env: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<ScriptResult> {
    const launchId = randomUUID();
    const request = scriptRequest(launchId, script, env, this.options.limits);
    return this.ask(signal, ({ remote }) => remote.run(sandboxId, { launchId, request, signal }));
  }

  protected override async make(): Promise<Parts> {
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
