import { createHash } from 'node:crypto';
import type { PrivateHost } from '../../../common/egress-network.js';
import type { RemoteGateway } from '../../../gateway/network/remote-gateway.js';
import type { Gateway } from '../../../supervisor/relay/gateways.js';
import type { UnknownStates } from '../../../supervisor/sandbox-error.js';
import type { SandboxLimits, SandboxLogger } from '../../../supervisor/sandbox-options.js';

/** The kernel users in a pod: the agent's, the supervisor's, and the group that may write to the root of volumes. */
export const USERS = { agent: 1000, supervisor: 1001, volume: 1002 } as const;

/** Labels of all our objects. */
export const LABELS = {
  installation: 'agent-session/installation',
  sandbox: 'agent-session/sandbox',
} as const;

/** The annotation of a volume whose sandbox has a writable root file system. */
export const WRITABLE_ROOT = 'agent-session/writable-root';

/** The pods of the gateway, as a network policy selects them. */
export interface GatewayPods {
  namespace: string;
  labels: Readonly<Record<string, string>>;
}

export interface KubernetesOptions {
  /** The file with the address of the cluster and the credentials. Default: those of the pod that this process is in. */
  kubeconfig?: string | undefined;
  /** The namespace of the sandboxes. Default: that of the credentials. */
  namespace?: string | undefined;
  /** The image of the agents' containers. */
  image: string;
  /** The image of this service, whose programs run beside the agent. */
  supervisorImage: string;
  /** Names of secrets of the namespace that the images are pulled with. */
  pullSecrets?: readonly string[];
  /** A RuntimeClass, such as that of gVisor. */
  runtimeClass?: string | undefined;
  /** Default: the cluster's default class. */
  storageClass?: string | undefined;
  cpus?: number | undefined;
  limits: SandboxLimits;
  /** After how many seconds without a turn a pod ends; its volume stays. */
  idleSeconds: number;
  /** How long a pod may wait for something that may pass, such as room on a node. Default: 3 minutes. */
  patienceMs?: number | undefined;
  /** Returns the installation id. Objects of other installations are never touched. Called on first use. */
  installation: () => Promise<string>;
  /**
   * The gateway as a service of its own, at an address that pods can reach. Without it, sandboxes have no network. A
   * command has no keys, so it has no `remote` either.
   */
  gateway?:
    { url: string; pods?: GatewayPods | undefined; remote?: RemoteGateway | undefined } | undefined;
  /** Addresses of model providers that the operator has configured. */
  gateways?: readonly Gateway[];
  privateHosts?: readonly PrivateHost[];
  logger?: SandboxLogger;
  unknownStates?: UnknownStates;
}

/** The names of an installation's objects, which can be derived from the ids of sandboxes. */
export class ObjectNames {
  /** The value of the label of all objects, and the name of the network policy. */
  readonly installation: string;

  constructor(installation: string) {
    const id = createHash('sha256').update(installation).digest('hex').slice(0, 12);
    this.installation = `session-${id}`;
  }

  /** The name of a sandbox's pod and of its volume. */
  of(sandboxId: string): string {
    return `${this.installation}-${sandboxId.replaceAll('-', '')}`;
  }

  labels(sandboxId: string): Record<string, string> {
    return { [LABELS.installation]: this.installation, [LABELS.sandbox]: sandboxId };
  }

  /** Selects all objects of the installation. */
  get selector(): string {
    return `${LABELS.installation}=${this.installation}`;
  }
}
