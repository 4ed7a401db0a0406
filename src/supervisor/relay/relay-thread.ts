import { Worker } from 'node:worker_threads';
import { once } from 'node:events';
import type { GatewayAddress } from '../../gateway/client.js';
import type { AdoptedListener, ListenerDescriptor, NativeHandle } from './binding.js';
import type { RelayOptions } from './relay.js';

/** How a sandbox reaches the gateway. */
export interface GatewayLink {
  /** Where the gateway is, as the relay sees it. */
  address: GatewayAddress;
  sandboxId: string;
}

/** The arguments of the thread. */
export type RelayThreadOptions = Pick<RelayOptions, 'policy' | 'gateways' | 'privateHosts'> & {
  /** Default: the relay resolves and connects by itself, and there is no broker. */
  gateway?: GatewayLink | undefined;
};

/** The thread's answer: it serves the sockets, or the reason why it cannot. */
export type RelayThreadAnswer = { ok: true } | { ok: false; message: string };

/**
 * Handles of the descriptors that threads serve. They are kept for the life of the process, as the threads are, because
 * garbage collection would close the descriptors.
 */
const kept: NativeHandle[] = [];

/** A small heap, as in the supervisor, because relayed data is not kept. */
const RESOURCES = { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 4 };

/**
 * A relay on a separate thread, so that a sandbox that keeps its relay busy does not delay the enforcement of its
 * limits on the main event loop.
 */
export class RelayThread {
  private readonly worker: Worker;

  constructor(options: RelayThreadOptions) {
    this.worker = new Worker(new URL('./relay-worker.js', import.meta.url), {
      workerData: options,
      name: 'relay',
      resourceLimits: RESOURCES,
    });
    // The thread does not keep this process alive, but its failure ends the process.
    this.worker.unref();
  }

  /**
   * Makes the thread serve sockets that listen in the sandbox's namespace. Resolves when it does.
   * @throws Error if the thread cannot serve them, or has ended
   */
  async serve(adopted: readonly AdoptedListener[]): Promise<void> {
    kept.push(...adopted.map(({ handle }) => handle));
    const listeners: ListenerDescriptor[] = adopted.map(({ spec, handle }) => ({
      spec,
      fd: handle.fd,
    }));
    const answered = once(this.worker, 'message') as Promise<[RelayThreadAnswer]>;
    this.worker.postMessage(listeners, []);
    const [answer] = await answered;
    if (!answer.ok) throw new Error(`the relay does not serve the network: ${answer.message}`);
  }
}
