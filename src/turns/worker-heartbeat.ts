import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxRoom } from '../sandboxes/sandbox-room.js';
import type { WorkersRepository } from '../sessions/workers.repository.js';

const LONGEST_HEARTBEAT_MS = 15_000;
const PREFLIGHT_LIMIT_MS = 10_000;

export interface WorkerHeartbeatParts {
  workers: WorkersRepository;
  room: SandboxRoom;
  worker: { owner: string; driver: string; host: string | null; slots: number; url: string | null };
  /** After this long without a heartbeat, the host counts as lost. */
  hostLostSeconds: number;
  failed: (error: unknown) => void;
}

/** Records regularly that a worker and its host are alive, and whether the worker can make sandboxes. */
export class WorkerHeartbeat {
  /** Why sandboxes cannot be made, as of the last heartbeat; `null` when they can. */
  problem: string | null = 'it has not tried yet';
  private readonly intervalMs: number;

  constructor(private readonly parts: WorkerHeartbeatParts) {
    this.intervalMs = Math.min(LONGEST_HEARTBEAT_MS, (parts.hostLostSeconds * 1000) / 5);
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.beat();
      await delay(this.intervalMs, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Records that the worker takes no more turns. */
  async stop(): Promise<void> {
    await this.parts.workers.stopped(this.parts.worker.owner).catch(this.parts.failed);
  }

  async beat(): Promise<void> {
    const { workers, worker, failed } = this.parts;
    try {
      this.problem = await this.findProblem();
      await workers.beat({ ...worker, problem: this.problem });
    } catch (error) {
      failed(error);
    }
  }

  private async findProblem(): Promise<string | null> {
    try {
      await this.parts.room.check(AbortSignal.timeout(PREFLIGHT_LIMIT_MS));
      return null;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }
}
