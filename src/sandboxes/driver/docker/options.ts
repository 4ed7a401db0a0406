import {
  HOME,
  WORKSPACE,
  type SandboxLimits,
  type SandboxLogger,
} from '../../../supervisor/sandbox-options.js';
import type { SharedGatewayConfig } from '../../../gateway/gateway-config.js';
import type { Gateway } from '../../../supervisor/relay/gateways.js';
import type { UnknownStates } from '../../../supervisor/sandbox-error.js';

const PREFIX = 'agent-session';

/** The labels of everything that the driver creates on an engine. */
export const LABELS = {
  /** The installation. Missing on objects that all installations share. */
  installation: `${PREFIX}.installation`,
  session: `${PREFIX}.session`,
  role: `${PREFIX}.role`,
  /** For sandboxes: whether `setup` may change the root file system. */
  writableRoot: `${PREFIX}.writable-root`,
  /** For gateways: the program with its configuration. */
  version: `${PREFIX}.version`,
} as const;

export type Role =
  | 'sandbox'
  | 'relay'
  | 'build'
  | 'build-relay'
  | 'counter'
  | 'volume'
  | 'cache'
  | 'runtime'
  | 'gateway'
  | 'certificates';

/**
 * The path of the supervisors' and relays' runtime: in its image and, through a volume, in sandboxes. It is at the top
 * level, like the spool: a setup script could give a parent folder to the tenant, who could then move it with the mount
 * and put another one in its place. A mount point itself cannot be moved, and `/` stays owned by root.
 */
export const RUNTIME_MOUNT = '/.agent-session';
export const SPOOL = '/.agent-spool';
/** The volumes of a sandbox and their mount points. Only root can write to `spool`; the agent can fill the others. */
export const SANDBOX_VOLUMES: Readonly<Record<string, readonly string[]>> = {
  home: [HOME],
  workspace: [WORKSPACE],
  tmp: ['/tmp', '/var/tmp'],
  spool: [SPOOL],
};
/** The folder of an image with installed software that holds the files for home and workspace, which are volumes. */
export const SEED = '/var/lib/agent-session';
/** The folder with the socket between the gateway and the relays. */
export const GATEWAY_MOUNT = '/gateway';
export const GATEWAY_SOCKET = `${GATEWAY_MOUNT}/socket`;

/** The certificates that programs in a sandbox trust, if the operator has added some. */
export const CERTIFICATES_MOUNT = '/.agent-certificates';
export const CERTIFICATES_FILE = `${CERTIFICATES_MOUNT}/certificates.pem`;

/** The names of a session's objects. They are unique to the installation and can be derived from the session's id. */
export class Names {
  constructor(readonly installation: string) {}

  sandbox(sandboxId: string): string {
    return `${PREFIX}-${this.installation}-${sandboxId}`;
  }
  /** The container that is about to replace a sandbox's container. */
  replacement(sandboxId: string): string {
    return `${this.sandbox(sandboxId)}-next`;
  }
  relay(sandboxId: string): string {
    return `${this.sandbox(sandboxId)}-relay`;
  }
  volume(sandboxId: string, part: string): string {
    return `${this.sandbox(sandboxId)}-${part}`;
  }
  /** The gateway's container and the volume with its socket. */
  get gateway(): string {
    return `${PREFIX}-${this.installation}-gateway`;
  }
  /** The volume with certificates. */
  certificates(digest: string): string {
    return `${PREFIX}-${this.installation}-certificates-${digest}`;
  }
  /** The repository of images with installed software. */
  get cache(): string {
    return `${PREFIX}-cache-${this.installation}`;
  }

  labels(role: Role, sandboxId: string): Record<string, string> {
    return {
      [LABELS.installation]: this.installation,
      [LABELS.role]: role,
      [LABELS.session]: sandboxId,
    };
  }

  /** A filter for the engine's lists: this installation's objects, or those of one session. */
  filter(sandboxId?: string): { label: string[] } {
    return {
      label: [
        `${LABELS.installation}=${this.installation}`,
        ...(sandboxId === undefined ? [] : [`${LABELS.session}=${sandboxId}`]),
      ],
    };
  }
}

/** The address of the engine. */
export interface EngineAddress {
  /** `unix:///path`, `tcp://host:port`, `http://…` or `https://…`. */
  host: string;
  /** A folder with `ca.pem`, `cert.pem` and `key.pem`. Use TLS if set. */
  certPath?: string;
}

export interface DockerSandboxOptions {
  engine: EngineAddress;
  /**
   * Returns the installation id. Everything that an installation makes on an engine is labelled with it, and the driver
   * never touches objects with another label. Called on first use.
   */
  installation: () => Promise<string>;
  /** The image of sandboxes. It must be present on the engine. */
  image: string;
  /** The engine's runtime for sandboxes; `undefined`: the engine's default. */
  runtime?: string;
  /** Processors; may be a fraction. `undefined`: no limit. */
  cpus?: number;
  limits: SandboxLimits;
  gateways: readonly Gateway[];
  gatewayConfig: SharedGatewayConfig;
  /** The network of the gateway's container, which connects for all sandboxes. Default: the network of the engine's host. */
  egressNetwork?: string;
  /** How many images with installed software are kept, and for how long. */
  cache: { images: number; seconds: number };
  /** The longest duration of a build. */
  buildLimitMs: number;
  logger?: SandboxLogger;
  /** Notified of launches whose state becomes unknown, or known again. */
  unknownStates?: UnknownStates;
}
