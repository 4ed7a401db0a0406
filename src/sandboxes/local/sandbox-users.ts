import { join } from 'node:path';
import { sweepUser } from '../shared/launch/launch-end.js';
import { firstUserOf, UserPool } from './user-pool.js';

/**
 * The kernel users of this installation's sandboxes. Where the service is an ordinary user there are none: all sandboxes
 * run as its own.
 */
export class SandboxUsers {
  private pool: UserPool | undefined;

  constructor(
    private readonly root: boolean,
    private readonly stateDir: string,
  ) {}

  /** For probing the host and for installing; `null` for the service's own. */
  get probeUser(): number | null {
    return this.users()?.probeUser ?? null;
  }

  /** The user of a sandbox, `null` for the service's own; see {@link UserPool.claim}. */
  async claim(sandboxId: string): Promise<number | null> {
    return (await this.users()?.claim(sandboxId)) ?? null;
  }

  /** Ends all that a sandbox's users run. */
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

  /** Not before they are asked for: a host without spare users is told so by what needs them. */
  private users(): UserPool | null {
    if (!this.root) return null;
    return (this.pool ??= new UserPool(join(this.stateDir, '.uids'), firstUserOf(this.stateDir)));
  }
}
