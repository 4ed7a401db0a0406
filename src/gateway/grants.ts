import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

/** The provider APIs that the gateway knows. */
export type GrantedApi = 'anthropic' | 'openai' | 'google';

interface GrantBase {
  /** The sandbox that may use the grant; `null` where the gateway cannot tell sandboxes apart. */
  sandbox: string | null;
  session: string;
  turn: string;
  /** The id of the session's user. */
  user: string;
  /** The grant is refused from this time on. Milliseconds since 1970. */
  expires: number;
}

/** Permission to call one provider's API with a key that the sandbox does not have. */
export interface ModelGrant extends GrantBase {
  kind: 'model';
  api: GrantedApi;
  /** The API's address without a version, for example `https://api.anthropic.com`. */
  url: string;
  key: string;
}

/** Permission to use git repositories with their tokens. */
export interface GitGrant extends GrantBase {
  kind: 'git';
  repositories: readonly { url: string; token: string }[];
}

/** Permission to call one remote tool server with its secret headers. */
export interface ToolGrant extends GrantBase {
  kind: 'mcp';
  transport: 'http' | 'sse';
  url: string;
  headers: Readonly<Record<string, string>>;
}

export type Grant = ModelGrant | GitGrant | ToolGrant;

/** What a grant permits, without its holder and time. */
export type GrantContent =
  | Omit<ModelGrant, keyof GrantBase>
  | Omit<GitGrant, keyof GrantBase>
  | Omit<ToolGrant, keyof GrantBase>;

/**
 * Keys look like the provider's own, because agent programs check the format. The grant follows the prefix.
 */
export const KEY_PREFIXES: Readonly<Record<GrantedApi, string>> = {
  anthropic: 'sk-ant-api03-',
  openai: 'sk-proj-',
  google: 'AIza',
};

const IV_BYTES = 12;
const TAG_BYTES = 16;
const CONTEXT = 'gateway grant v1';

/**
 * Seals grants with AES-256-GCM, so that a sandbox can hold one without being able to read or change it. Any gateway
 * with the same keys can open it, which is why gateways need no state.
 */
export class GrantSeal {
  private readonly keys: readonly Buffer[];

  /** @param keys 32 bytes each in base64url; the first one seals, all of them open */
  constructor(keys: readonly string[]) {
    this.keys = keys.map((key) => Buffer.from(key, 'base64url'));
  }

  /** @returns base64url, about 4/3 of the grant's JSON plus 38 characters */
  seal(grant: Grant): string {
    return this.sealText(JSON.stringify(grant), CONTEXT);
  }

  /** @returns `undefined` for text that is not a grant of these keys */
  open(text: string): Grant | undefined {
    const plain = this.openText(text, CONTEXT);
    return plain === undefined ? undefined : (JSON.parse(plain) as Grant);
  }

  /** Seals any text for one purpose. */
  sealText(text: string, context: string): string {
    const [key] = this.keys;
    if (key === undefined) throw new Error('there is no key for grants');
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv('aes-256-gcm', key, iv);
    cipher.setAAD(Buffer.from(context));
    const body = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
    return Buffer.concat([iv, cipher.getAuthTag(), body]).toString('base64url');
  }

  /** @returns `undefined` for text that these keys did not seal for this purpose */
  openText(text: string, context: string): string | undefined {
    const bytes = Buffer.from(text, 'base64url');
    if (bytes.length <= IV_BYTES + TAG_BYTES) return undefined;
    for (const key of this.keys) {
      const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, IV_BYTES), {
        authTagLength: TAG_BYTES,
      });
      decipher.setAAD(Buffer.from(context));
      decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
      const body = decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES));
      try {
        return Buffer.concat([body, decipher.final()]).toString('utf8');
      } catch {
        // Sealed with another key, or not a grant at all.
      }
    }
    return undefined;
  }
}
