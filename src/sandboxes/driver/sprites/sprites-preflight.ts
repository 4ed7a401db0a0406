import { SandboxError } from '../../../supervisor/sandbox-error.js';
import type { SpritesOptions } from './options.js';

/** How long a cached answer is good. */
const CACHE_MS = 5_000;
const REACH_MS = 10_000;

/** Whether the vendor's interface and the gateway can be used now. */
export class SpritesPreflight {
  private reached: { at: number; done: Promise<void> } | undefined;

  /** @param check asks the vendor's interface, named `host` in messages */
  constructor(
    private readonly options: Pick<SpritesOptions, 'gateway' | 'needsGateway'>,
    private readonly host: string,
    private readonly check: (signal: AbortSignal) => Promise<void>,
    private readonly limitMs = REACH_MS,
  ) {}

  /** @throws SandboxError `unavailable` with the reason if not */
  async run(): Promise<void> {
    const { gateway, needsGateway } = this.options;
    if (gateway === undefined && needsGateway !== undefined) {
      throw new SandboxError('unavailable', `${needsGateway}: set GATEWAY_URL`);
    }
    if (this.reached === undefined || Date.now() - this.reached.at > CACHE_MS) {
      const done = this.reach();
      this.reached = { at: Date.now(), done };
      done.catch(() => (this.reached = undefined));
    }
    await this.reached.done;
  }

  private async reach(): Promise<void> {
    const signal = AbortSignal.timeout(this.limitMs);
    await this.check(signal).catch((error: unknown) => {
      if (!signal.aborted) throw error;
      const message = `${this.host} does not answer within ${this.limitMs / 1000} seconds`;
      throw new SandboxError('unavailable', message, { cause: error });
    });
    const { remote } = this.options.gateway ?? {};
    await remote?.check(AbortSignal.timeout(REACH_MS)).catch((error: unknown) => {
      const message = `the gateway is not ready: ${(error as Error).message}`;
      throw new SandboxError('unavailable', message, { cause: error });
    });
  }
}
