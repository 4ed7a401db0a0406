import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';

/**
 * The associated data of each encrypted column: the column's name and the row's key. A ciphertext that is copied to
 * another row or column cannot be decrypted there.
 */
export const secretContext = {
  environment: (id: string) => `environments.env_vars:${id}`,
  environmentVersion: (id: string, version: number) =>
    `environment_versions.env_vars:${id}:${version}`,
  agent: (id: string) => `agents.mcp_secrets:${id}`,
  agentVersion: (id: string, version: number) => `agent_versions.mcp_secrets:${id}:${version}`,
  session: (id: string) => `sessions.secrets:${id}`,
  userKey: (userId: string, provider: string) => `user_keys.key:${userId}:${provider}`,
};

/** The purpose for which the keys of the gateway's grants are derived. */
export const GRANT_KEYS = 'gateway grants';

const VERSION = 'v1';
const IV_BYTES = 12;
const TAG_BYTES = 16;
const KEY_BYTES = 32;

/**
 * Encrypts secrets at rest with AES-256-GCM. The format is `v1.<key id>.<base64url of iv, tag, ciphertext>`. The
 * context (which row, which column) is authenticated, so a ciphertext cannot be used elsewhere.
 */
export class KeyRing {
  private constructor(private readonly keys: ReadonlyMap<string, Buffer>) {}

  /**
   * @param text `ENCRYPTION_KEYS`: comma-separated `id:key` pairs, each key 32 bytes in base64. The first key encrypts,
   *   all keys decrypt.
   * @throws Error with a one-line message that never contains a key.
   */
  static parse(text: string): KeyRing {
    const keys = new Map<string, Buffer>();
    for (const [index, entry] of text.split(',').entries()) {
      const [id = '', encoded = '', ...rest] = entry.trim().split(':');
      const key = Buffer.from(encoded, 'base64');
      if (rest.length > 0 || !/^[A-Za-z0-9_-]{1,64}$/.test(id) || key.length !== KEY_BYTES) {
        throw new Error(
          `ENCRYPTION_KEYS: entry ${index + 1} must be id:key with a key of 32 bytes in base64`,
        );
      }
      if (keys.has(id)) throw new Error(`ENCRYPTION_KEYS: the id "${id}" appears twice`);
      keys.set(id, key);
    }
    return new KeyRing(keys);
  }

  /** @returns a new entry for `ENCRYPTION_KEYS`. */
  static generateEntry(): string {
    return `k${randomBytes(4).toString('hex')}:${randomBytes(KEY_BYTES).toString('base64')}`;
  }

  /** The id of the key that encrypts new secrets. */
  get primaryId(): string {
    return this.keys.keys().next().value as string;
  }

  get ids(): readonly string[] {
    return [...this.keys.keys()];
  }

  /** @param context e.g. `environments.env_vars:<id>`; decryption needs the same one. */
  seal(plaintext: string, context: string, keyId = this.primaryId): string {
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv('aes-256-gcm', this.key(keyId), iv);
    cipher.setAAD(Buffer.from(context));
    const ciphertext = Buffer.concat([cipher.update(plaintext, 'utf8'), cipher.final()]);
    const sealed = Buffer.concat([iv, cipher.getAuthTag(), ciphertext]).toString('base64url');
    return `${VERSION}.${keyId}.${sealed}`;
  }

  /** @throws Error when the key is not in the ring, or the text or context was modified. */
  open(sealed: string, context: string): string {
    const [version, keyId = '', body = ''] = sealed.split('.');
    if (version !== VERSION) throw new Error('Not a sealed secret');
    const bytes = Buffer.from(body, 'base64url');
    const decipher = createDecipheriv('aes-256-gcm', this.key(keyId), bytes.subarray(0, IV_BYTES), {
      authTagLength: TAG_BYTES,
    });
    decipher.setAAD(Buffer.from(context));
    decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
    return Buffer.concat([
      decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES)),
      decipher.final(),
    ]).toString('utf8');
  }

  /** @returns `null` if there is no secret, so that an environment without variables needs no key. */
  sealRecord(record: Readonly<Record<string, unknown>>, context: string): string | null {
    return Object.keys(record).length === 0 ? null : this.seal(JSON.stringify(record), context);
  }

  openRecord<T>(sealed: string | null, context: string): Record<string, T> {
    return sealed === null ? {} : (JSON.parse(this.open(sealed, context)) as Record<string, T>);
  }

  /**
   * Derives keys for another purpose, one from each key of the ring, so that a program that gets them cannot decrypt
   * what is stored. @returns 32 bytes each in base64url, the primary one first
   */
  derive(purpose: string): string[] {
    return [...this.keys.values()].map((key) =>
      Buffer.from(hkdfSync('sha256', key, '', purpose, KEY_BYTES)).toString('base64url'),
    );
  }

  toJSON(): string {
    return '[key ring]';
  }

  private key(id: string): Buffer {
    const key = this.keys.get(id);
    if (!key) throw new Error(`ENCRYPTION_KEYS lacks the key "${id}"`);
    return key;
  }
}
