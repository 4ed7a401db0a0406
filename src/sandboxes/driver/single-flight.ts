import { SandboxError } from '../../supervisor/sandbox-error.js';

const LIMIT_MS = 30_000;

/** Work that is done once for all callers that request it at the same time. */
export class SingleFlight<T> {
  private running: Promise<T> | undefined;

  /**
   * Joins the work that is under way, or begins it.
   * @param work gets a signal of its own, so that a caller that stops waiting does not end it for the others
   * @throws what `work` throws; SandboxError `unavailable` when the caller's signal fires first
   */
  async run(signal: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    this.running ??= work(AbortSignal.timeout(LIMIT_MS)).finally(() => {
      this.running = undefined;
    });
    const { running } = this;
    return new Promise<T>((resolve, reject) => {
      const giveUp = (): void =>
        reject(new SandboxError('unavailable', 'the check of the host does not end in time'));
      signal.addEventListener('abort', giveUp, { once: true });
      if (signal.aborted) giveUp();
      running.then(resolve, reject).finally(() => signal.removeEventListener('abort', giveUp));
    });
  }
}
