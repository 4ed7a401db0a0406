import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { UnknownState, type UnknownStates } from '../../supervisor/sandbox-error.js';
import { SupervisorClient } from '../../supervisor/supervisor-client.js';
import type { LaunchRef, ScriptResult } from './sandbox-driver.js';

/** How long a supervisor may take to kill a launch, unless the driver says otherwise. */
const KILL_MS = 1500;
/** For how long that is tried. */
const KILL_LIMIT_MS = 30_000;
/** A connection that is idle for so long is closed, and with it ends what answers calls, in the sandbox's own memory. */
const IDLE_MS = 2000;
/** With so many supervisors known, those of sandboxes without a turn are forgotten. */
const CLIENTS = 1000;

/** How a driver reaches the supervisor of a sandbox. */
export interface SupervisorTransport {
  /**
   * Opens a connection to `supervisor/serve.ts` in the sandbox.
   * @throws SandboxError `gone` if there is certainly no such sandbox, `unavailable` if that is unknown
   */
  connect(sandboxId: string): Promise<Duplex>;
  /** Ends all processes of a sandbox that must run again for the next call. */
  stop(sandboxId: string): Promise<void>;
  /** How long a supervisor may take to kill a launch before {@link stop} is called. */
  killMs?: number;
}

/** The supervisors of sandboxes that are reached over byte streams: one for each sandbox, connected while it is used. */
export class RemoteLaunches {
  private readonly clients = new Map<string, SupervisorClient>();

  constructor(
    private readonly transport: SupervisorTransport,
    private readonly unknownStates?: UnknownStates,
  ) {}

  supervisor(sandboxId: string): SupervisorClient {
    const known = this.clients.get(sandboxId);
    if (known !== undefined) return known;
    if (this.clients.size >= CLIENTS) this.forgetIdle();
    const client = new SupervisorClient({
      connect: () => this.transport.connect(sandboxId),
      idleMs: IDLE_MS,
      unknown: (launchId) =>
        new UnknownState(`launch ${launchId} of sandbox ${sandboxId}`, this.unknownStates),
    });
    this.clients.set(sandboxId, client);
    return client;
  }

  /**
   * Runs a script to its end. It does not outlive who waits for it, also if only the connection has broken.
   * @throws SandboxError as documented in the port
   */
  async run(
    sandboxId: string,
    launch: Parameters<SupervisorClient['run']>[0],
  ): Promise<ScriptResult> {
    try {
      return await this.supervisor(sandboxId).run(launch);
    } catch (error) {
      await this.kill({ sandboxId, launchId: launch.launchId }).catch(() => undefined);
      throw error;
    }
  }

  /** Ends a launch. If its supervisor does not do that in time, all of its sandbox is stopped. */
  async kill({ sandboxId, launchId }: Pick<LaunchRef, 'sandboxId' | 'launchId'>): Promise<void> {
    const { transport } = this;
    const stop = () => transport.stop(sandboxId);
    await killInTime(this.supervisor(sandboxId), launchId, stop, transport.killMs);
  }

  /** Lets go of the supervisor of a sandbox that is destroyed. */
  async forget(sandboxId: string): Promise<void> {
    await this.clients.get(sandboxId)?.close();
    this.clients.delete(sandboxId);
  }

  /** Closes all connections. Launches go on. */
  async close(): Promise<void> {
    await Promise.all([...this.clients.keys()].map((sandboxId) => this.forget(sandboxId)));
  }

  private forgetIdle(): void {
    for (const [sandboxId, client] of this.clients) {
      if (!client.isConnected) this.clients.delete(sandboxId);
    }
  }
}

/** Ends a launch by its supervisor, or else by `stop`. */
export async function killInTime(
  client: SupervisorClient,
  launchId: string,
  stop: () => Promise<void>,
  killMs = KILL_MS,
): Promise<void> {
  const signal = AbortSignal.timeout(KILL_LIMIT_MS);
  const ended = client.kill({ launchId, signal }).then(
    () => true,
    () => false,
  );
  if (await Promise.race([ended, delay(killMs, false, { ref: false })])) return;
  await stop();
  await client.kill({ launchId, signal });
}
