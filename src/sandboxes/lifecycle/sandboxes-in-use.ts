import { Injectable } from '@nestjs/common';

/** The sandboxes that turns of this process use. The worker reports them; the reaper waits for them. */
@Injectable()
export class SandboxesInUse {
  private readonly uses = new Map<Promise<void>, string>();
  /**
   * Sandboxes of turns that were ended while this process ran them. They may have been made after their record was
   * deleted.
   */
  readonly lost = new Set<string>();

  /** @param done resolves when the session's sandbox is no longer used. */
  begin(sessionId: string, done: Promise<void>): void {
    this.uses.set(done, sessionId);
    void done.finally(() => this.uses.delete(done)).catch(() => undefined);
  }

  /** Resolves when nothing in this process uses the session's sandbox. */
  async whenUnused(sessionId: string): Promise<void> {
    await Promise.all([...this.uses].filter(([, id]) => id === sessionId).map(([done]) => done));
  }
}
