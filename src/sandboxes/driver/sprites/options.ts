import { createHash } from 'node:crypto';
import type { RemoteGateway } from '../../../gateway/network/remote-gateway.js';
import type { SandboxLimits, SandboxLogger } from '../../../supervisor/sandbox-options.js';
import type { UnknownStates } from '../../../supervisor/sandbox-error.js';

/** Our files in a sprite. Only root can enter the folder. */
export const FOLDER = '/.agent-session';
/** The folders of launches, with their output. */
export const LAUNCHES = `${FOLDER}/launches`;
/** How the supervisor reaches the gateway, with the secret of the sandbox. */
export const GATEWAY_LINK = `${FOLDER}/gateway.json`;
/** What launches see as /tmp and /var/tmp: the vendor's own /tmp is lost when a sprite sleeps for long. */
export const TMP = `${FOLDER}/tmp`;
/** The vendor's interface inside of a sprite, which can restore checkpoints and keep the sprite awake. */
export const API_SOCKET = '/.sprite/api.sock';
/** Where the vendor shows earlier states of the files, which it takes now and then by itself. */
export const CHECKPOINTS = '/.sprite/checkpoints';
/** The kernel user of agents. The vendor's default user has another number, and rights that no agent may have. */
export const AGENT = 64_007;

/** How the vendor's interface is reached. */
export interface SpritesAccess {
  token: string;
  /** Without a trailing slash. */
  baseUrl: string;
}

export interface SpritesOptions {
  access: SpritesAccess;
  /** The beginning of all names: lower-case letters, digits and dashes. */
  prefix: string;
  /** Returns the installation id. Sprites of other installations are never touched. Called on first use. */
  installation: () => Promise<string>;
  limits: SandboxLimits;
  /**
   * The gateway as a service of its own, at an address that sprites can reach. Without it they get no credentials. A
   * command has no keys, so it has no `remote` either: it can create sandboxes, but none that uses the gateway.
   */
  gateway?: { url: string; remote?: RemoteGateway } | undefined;
  /** What is needed but works only through the gateway, in words; refused while there is no gateway. */
  needsGateway?: string | undefined;
  logger?: SandboxLogger;
  unknownStates?: UnknownStates;
}

/** The names of an installation's sprites, which can be derived from the ids of sandboxes. */
export class SpriteNames {
  /** What all of them begin with. */
  readonly start: string;

  constructor(prefix: string, installation: string) {
    const id = createHash('sha256').update(installation).digest('hex').slice(0, 12);
    this.start = `${prefix}-${id}-`;
  }

  of(sandboxId: string): string {
    return this.start + sandboxId.replaceAll('-', '');
  }

  /** @returns `undefined` for a sprite of another installation */
  sandboxId(name: string): string | undefined {
    if (!name.startsWith(this.start)) return undefined;
    const parts = /^([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$/.exec(
      name.slice(this.start.length),
    );
    return parts === null ? undefined : parts.slice(1).join('-');
  }
}
