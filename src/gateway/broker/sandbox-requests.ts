import { RateLimit } from '../../common/rate-limit.js';

/** More than an agent with many subagents has at a time. */
const MAX_OPEN = 64;
const RATE = { each: 50, burst: 300 };
const SWEEP_MS = 10_000;

interface Share {
  open: number;
  rate: RateLimit;
  idleSince: number;
}

/** Limits the requests of each sandbox, because all sandboxes share the broker's processor and memory. */
export class SandboxRequests {
  private readonly shares = new Map<string, Share>();
  private readonly sweep = setInterval(() => this.forgetIdle(), SWEEP_MS).unref();

  /**
   * Counts a request. Requests of unknown sandboxes are not limited: they come from installations without isolation.
   * @returns the function that ends it; `undefined` if the sandbox has too many
   */
  begin(sandbox: string | null): (() => void) | undefined {
    if (sandbox === null) return () => undefined;
    const share = this.shares.get(sandbox) ?? { open: 0, rate: new RateLimit(RATE), idleSince: 0 };
    this.shares.set(sandbox, share);
    if (share.open >= MAX_OPEN || !share.rate.take()) return undefined;
    share.open += 1;
    return () => {
      share.open -= 1;
      share.idleSince = performance.now();
    };
  }

  close(): void {
    clearInterval(this.sweep);
  }

  /** A share that was idle for this long allows a full burst again, like a new one. */
  private forgetIdle(): void {
    const before = performance.now() - SWEEP_MS;
    for (const [sandbox, { open, idleSince }] of this.shares)
      if (open === 0 && idleSince < before) this.shares.delete(sandbox);
  }
}
