import { HOME, WORKSPACE } from '../shared/layout.js';

const PREFIX = 'agent-session';

/** Labels on everything that the driver makes on an engine. */
export const LABELS = {
  /** Whose it is. Missing on what all installations share. */
  installation: `${PREFIX}.installation`,
  session: `${PREFIX}.session`,
  role: `${PREFIX}.role`,
  /** Of a sandbox: has it a system that `setup` may change? */
  writableRoot: `${PREFIX}.writable-root`,
} as const;

export type Role =
  'sandbox' | 'relay' | 'build' | 'build-relay' | 'volume' | 'cache' | 'runtime' | 'egress';

/** Where the runtime of supervisors and relays is: in its image and, by way of a volume, in sandboxes. */
export const RUNTIME_MOUNT = '/opt/agent-session';
/** The volumes of a sandbox, by where they are in it. The last is root's. */
export const SPOOL = '/var/spool/agent-session';
export const SANDBOX_VOLUMES: Readonly<Record<string, string>> = {
  home: HOME,
  workspace: WORKSPACE,
  spool: SPOOL,
};
/** Where an image with installed software keeps what belongs into home and workspace, which are volumes. */
export const SEED = '/var/lib/agent-session';
/** Where the egress and the relays meet. */
export const EGRESS_MOUNT = '/egress';

/** The names of a session's things. Two installations never share one, and a session's are found by its id. */
export class Names {
  constructor(readonly installation: string) {}

  sandbox(sandboxId: string): string {
    return `${PREFIX}-${this.installation}-${sandboxId}`;
  }
  /** A sandbox's container that is about to replace it. */
  replacement(sandboxId: string): string {
    return `${this.sandbox(sandboxId)}-next`;
  }
  relay(sandboxId: string): string {
    return `${this.sandbox(sandboxId)}-relay`;
  }
  volume(sandboxId: string, part: string): string {
    return `${this.sandbox(sandboxId)}-${part}`;
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

  /** A filter, as the engine's lists take it, for this installation's things; of one session, if given. */
  filter(sandboxId?: string): { label: string[] } {
    return {
      label: [
        `${LABELS.installation}=${this.installation}`,
        ...(sandboxId === undefined ? [] : [`${LABELS.session}=${sandboxId}`]),
      ],
    };
  }
}
