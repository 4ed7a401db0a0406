import { fileLimitReached, sharedFileLimitReached } from '../common/errors.js';

/** How many files one user may access at the same time. Each access is a process beside the agent. */
const MAX_OF_USER = 16;
/** How many all users may access at the same time, in this process. */
const MAX_OF_ALL = 128;

/** Counts accesses to files while they last. */
export class OpenFiles {
  private readonly ofUser = new Map<string, number>();
  private all = 0;

  /** @returns ends the access; may be called more than once. @throws DomainError 429 */
  begin(userId: string): () => void {
    const own = this.ofUser.get(userId) ?? 0;
    if (own >= MAX_OF_USER) throw fileLimitReached(MAX_OF_USER, own);
    if (this.all >= MAX_OF_ALL) throw sharedFileLimitReached(MAX_OF_ALL, this.all);
    this.all += 1;
    this.ofUser.set(userId, own + 1);
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      this.all -= 1;
      const left = (this.ofUser.get(userId) ?? 1) - 1;
      if (left === 0) this.ofUser.delete(userId);
      else this.ofUser.set(userId, left);
    };
  }
}
