import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import type Docker from 'dockerode';
import { inspectContainer } from './containers.js';

/** How long a gateway that was killed is left to the engine, which at first restarts it after 100 ms. */
const ENGINE_RESTART_MS = 300;
/** How long to wait when the engine does not answer. */
const RETRY_MS = 1000;
/** How long a start in progress may take when the watch is closed. The engine may hang. */
const CLOSE_MS = 5000;

export interface WatchOptions {
  docker: Docker;
  /** The name of the gateway's container. */
  name: string;
  /** Whether the container is the one that this process would start. */
  isOwn: (there: Docker.ContainerInspectInfo) => boolean;
  /** Starts the gateway. */
  start: () => Promise<void>;
}

/**
 * Starts the gateway again when it was killed. The engine does that, too, but waits twice as long each time, up to a
 * minute, which is too long for the sandboxes that wait.
 */
export class GatewayWatch {
  private watching: Promise<void> | undefined;
  private readonly closing = new AbortController();

  constructor(private readonly options: WatchOptions) {}

  /** Watches from now on until the gateway is removed, replaced or exits by itself. */
  begin(): void {
    if (this.closing.signal.aborted) return;
    this.watching ??= this.watch().finally(() => (this.watching = undefined));
  }

  /** Stops watching. The gateway goes on. Waits a while for a start in progress. */
  async close(): Promise<void> {
    this.closing.abort();
    await Promise.race([this.watching, once(AbortSignal.timeout(CLOSE_MS), 'abort')]);
  }

  private async watch(): Promise<void> {
    const { signal } = this.closing;
    while (!signal.aborted) {
      try {
        if (!(await this.isKilled(signal))) return;
        await this.options.start();
      } catch {
        // The engine may be restarting. If the gateway cannot be started, it was removed, and the next launch reports why.
        await delay(RETRY_MS, undefined, { signal }).catch(() => undefined);
      }
    }
  }

  /**
   * Waits until the engine does not restart the gateway soon.
   * @returns false if there is nothing to start again
   */
  private async isKilled(signal: AbortSignal): Promise<boolean> {
    const { docker, name, isOwn } = this.options;
    for (;;) {
      // Waits before it looks: an exit between the two is seen by one of them.
      const exit = docker.getContainer(name).wait({ condition: 'next-exit', abortSignal: signal });
      exit.catch(() => undefined);
      await delay(ENGINE_RESTART_MS, undefined, { signal });
      const there = await inspectContainer(docker.getContainer(name));
      if (there === null || !isOwn(there)) return false;
      const { Running, Restarting } = there.State;
      if (Restarting) return true;
      // The engine does not restart what has exited by itself, or was stopped or removed on purpose.
      if (!Running) return false;
      await exit;
    }
  }
}
