import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdir, readdir, readlink, symlink, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { SandboxError } from '../sandbox-error.js';

/** Kernel users of one installation. The last is kept for probing the host. */
const USERS = 4096;
/** Beyond what distributions and container managers hand out; still a positive signed number, for old programs. */
const FIRST_USER = 2_000_000_000;
const INSTALLATIONS = 30_000;

/** May this process become such a user? Not all are mapped where root is only root of a container. */
function isMapped(first: number, count: number): boolean {
  return readFileSync('/proc/self/uid_map', 'utf8')
    .trim()
    .split('\n')
    .some((line) => {
      const [inside = 0, , length = 0] = line.trim().split(/\s+/).map(Number);
      return inside <= first && first + count <= inside + length;
    });
}

/** Where the range of an installation begins: its own, so that two on one host never share a user. */
export function firstUserOf(stateDir: string): number {
  const slot = createHash('sha256').update(stateDir).digest().readUInt32LE() % INSTALLATIONS;
  const preferred = FIRST_USER + slot * USERS;
  if (isMapped(preferred, USERS)) return preferred;
  const withinContainer = 61_440 - USERS;
  if (isMapped(withinContainer, USERS)) return withinContainer;
  throw new SandboxError(
    'unavailable',
    'root has no spare user ids here for sandboxes (see /proc/self/uid_map): run the service as an ordinary user',
  );
}

/**
 * Hands out one kernel user per sandbox. A claim is a symbolic link named for the user that points to the sandbox's id:
 * made whole or not at all, so a crash leaves nothing that cannot be read.
 */
export class UserPool {
  constructor(
    private readonly folder: string,
    private readonly first: number,
  ) {}

  get probeUser(): number {
    return this.first + USERS - 1;
  }

  /** The user of a sandbox; the same one for as long as it is not released. */
  async claim(sandboxId: string): Promise<number> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const claims = await this.claims();
    const own = claims.find((claim) => claim.sandboxId === sandboxId);
    if (own) return own.uid;
    const taken = new Set(claims.map((claim) => claim.uid));
    for (let uid = this.first; uid < this.probeUser; uid += 1) {
      if (taken.has(uid)) continue;
      try {
        await symlink(sandboxId, join(this.folder, String(uid)));
        return uid;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
    }
    throw new SandboxError('failed', 'all kernel users for sandboxes are taken');
  }

  /** The user of a sandbox, if it has one. */
  async find(sandboxId: string): Promise<number | null> {
    return (await this.claims()).find((claim) => claim.sandboxId === sandboxId)?.uid ?? null;
  }

  async release(uid: number): Promise<void> {
    await unlink(join(this.folder, String(uid))).catch(() => undefined);
  }

  /** Who has which user. */
  async claims(): Promise<{ uid: number; sandboxId: string }[]> {
    const names = await readdir(this.folder).catch(() => []);
    const claims = await Promise.all(
      names.map(async (name) => ({
        uid: Number(name),
        sandboxId: await readlink(join(this.folder, name)).catch(() => ''),
      })),
    );
    return claims.filter(({ sandboxId }) => sandboxId !== '');
  }
}
