import { createHash, randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdir, readdir, readlink, symlink, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { SandboxError } from '../../../supervisor/sandbox-error.js';
import { ifMissing } from '../../../common/missing-file.js';
import { sweepUser } from '../../../supervisor/launch-end.js';

/** Kernel users of one installation. The last is kept for probing the host. */
const USERS = 4096;
/** Beyond what distributions and container managers hand out; still a positive signed number, for old programs. */
const FIRST_USER = 2_000_000_000;
const INSTALLATIONS = 30_000;
/** How long a sandbox waits for a user when all are taken. */
const FULL_WAIT_MS = 15_000;
const FULL_RETRY_MS = 250;

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

const ID_LINK = /^\d+$/;
const OF = 'of-';

/**
 * Hands out one kernel user per sandbox, to any number of processes. A claim is a symbolic link named for the user that
 * points to the sandbox's id: made whole or not at all, so a crash leaves nothing that cannot be read. Which of several
 * claims for one sandbox counts is said by a second link, named for the sandbox.
 */
export class UserPool {
  constructor(
    private readonly folder: string,
    private readonly first: number,
  ) {}

  get probeUser(): number {
    return this.first + USERS - 1;
  }

  /**
   * The user of a sandbox; the same one for as long as it is not released. Where all are taken, waits for a while: other
   * sandboxes may be about to go.
   * @throws SandboxError `unavailable` when all stay taken; the signal's reason
   */
  async claim(sandboxId: string, signal: AbortSignal): Promise<number> {
    const known = await this.target(OF + sandboxId);
    if (known !== '') return Number(known);
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const giveUpAt = performance.now() + FULL_WAIT_MS;
    let uid = await this.take(sandboxId);
    while (uid === undefined) {
      if (performance.now() > giveUpAt) {
        throw new SandboxError(
          'unavailable',
          `all ${USERS - 1} kernel users for sandboxes are taken: delete sessions, or lower SANDBOX_IDLE_TTL or SANDBOXES_PER_USER`,
        );
      }
      await delay(FULL_RETRY_MS, undefined, { signal });
      uid = await this.take(sandboxId);
    }
    const decided = await this.decide(sandboxId, uid);
    if (decided !== uid) await this.unlink(String(uid));
    return decided;
  }

  /**
   * The users that were claimed for a sandbox: the one that counts, or whatever a crash left. What lies beside the one
   * that counts is found once that is released: until then the sandbox is listed.
   */
  async find(sandboxId: string): Promise<number[]> {
    const decided = await this.target(OF + sandboxId);
    if (decided !== '') return [Number(decided)];
    const claims = await this.claims();
    return claims.filter((claim) => claim.sandboxId === sandboxId).map(({ uid }) => uid);
  }

  /** Is this still the sandbox's user? Once released it may be another one's at any time. */
  async holds(sandboxId: string, uid: number): Promise<boolean> {
    return (await this.target(String(uid))) === sandboxId;
  }

  async release(sandboxId: string): Promise<void> {
    const users = await this.find(sandboxId);
    await this.unlink(OF + sandboxId);
    for (const uid of users) await this.unlink(String(uid));
  }

  /** Who has which user. */
  async claims(): Promise<{ uid: number; sandboxId: string }[]> {
    const names = (await this.names()).filter((name) => ID_LINK.test(name));
    const claims = await Promise.all(
      names.map(async (name) => ({ uid: Number(name), sandboxId: await this.target(name) })),
    );
    return claims.filter(({ sandboxId }) => sandboxId !== '');
  }

  /** All sandboxes of which there is any trace here. */
  async sandboxes(): Promise<string[]> {
    const decided = (await this.names())
      .filter((name) => name.startsWith(OF))
      .map((name) => name.slice(OF.length));
    return [...new Set([...decided, ...(await this.claims()).map(({ sandboxId }) => sandboxId)])];
  }

  /** How many users there are for sandboxes, and how many of them have one. */
  async places(): Promise<{ taken: number; most: number }> {
    const names = await this.names();
    return { taken: names.filter((name) => ID_LINK.test(name)).length, most: USERS - 1 };
  }

  /** @returns `undefined` when all are taken */
  private async take(sandboxId: string): Promise<number | undefined> {
    // From anywhere: a user that was just released is not handed out again while somebody may still be sweeping it.
    const start = randomInt(USERS - 1);
    for (let step = 0; step < USERS - 1; step += 1) {
      const uid = this.first + ((start + step) % (USERS - 1));
      if (await this.link(sandboxId, String(uid))) return uid;
    }
    return undefined;
  }

  /** Of those who claim a user for the same sandbox at the same time, the first to get here decides. */
  private async decide(sandboxId: string, uid: number): Promise<number> {
    const name = OF + sandboxId;
    for (;;) {
      if (await this.link(String(uid), name)) return uid;
      const decided = await this.target(name);
      if (decided !== '') return Number(decided);
    }
  }

  /** @returns false when the name is taken. */
  private async link(target: string, name: string): Promise<boolean> {
    try {
      await symlink(target, join(this.folder, name));
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      return false;
    }
  }

  private async target(name: string): Promise<string> {
    return readlink(join(this.folder, name)).catch(ifMissing(''));
  }

  private async names(): Promise<string[]> {
    return readdir(this.folder).catch(ifMissing<string[]>([]));
  }

  private async unlink(name: string): Promise<void> {
    await unlink(join(this.folder, name)).catch(ifMissing(undefined));
  }
}

/**
 * The kernel users of this installation's sandboxes. If the service is an ordinary user there are none: all sandboxes
 * run as the service's user.
 */
export class SandboxUsers {
  private pool: UserPool | undefined;

  constructor(
    private readonly root: boolean,
    private readonly stateDir: string,
  ) {}

  /** The user for probes and installations; `null` for the service's own. */
  get probeUser(): number | null {
    return this.users()?.probeUser ?? null;
  }

  /** The user of a sandbox, `null` for the service's own; see {@link UserPool.claim}. */
  async claim(sandboxId: string, signal: AbortSignal): Promise<number | null> {
    return (await this.users()?.claim(sandboxId, signal)) ?? null;
  }

  /** How many users are taken; `undefined` if all sandboxes run as the service's user. */
  async places(): Promise<{ taken: number; most: number } | undefined> {
    return this.users()?.places();
  }

  /** Kills all processes of a sandbox's users. */
  async sweep(sandboxId: string): Promise<void> {
    const users = this.users();
    if (users === null) return;
    for (const uid of await users.find(sandboxId)) {
      await sweepUser(uid, () => users.holds(sandboxId, uid));
    }
  }

  async release(sandboxId: string): Promise<void> {
    await this.users()?.release(sandboxId);
  }

  /** All sandboxes that have a user. */
  async sandboxes(): Promise<string[]> {
    return (await this.users()?.sandboxes()) ?? [];
  }

  /** Made on first use, so that a host without spare users fails only when users are needed. */
  private users(): UserPool | null {
    if (!this.root) return null;
    return (this.pool ??= new UserPool(join(this.stateDir, '.uids'), firstUserOf(this.stateDir)));
  }
}
