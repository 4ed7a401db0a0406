import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Services } from './services.js';
import { Session } from './sessions.js';
import { Tasks } from './tasks.js';
import type { Rule } from './name-server.js';
import type { SpritesNetwork } from './network.js';
import { Machine, newCable } from './vm.js';

/** How fast things go. The vendor's values are far from what a test can wait for. */
export interface Timing {
  /** A sprite pauses when nothing has kept it awake for so long. */
  pauseMs: number;
  /** A paused sprite loses its processes after so long. */
  coldMs: number;
  /** How long a command without a terminal goes on after its client left. */
  disconnectMs: number;
  /** Restoring a checkpoint begins so long after it was answered. */
  restoreMs: number;
}

interface Checkpoint {
  id: string;
  create_time: Date;
  comment?: string;
  folder: string;
}

/** One sprite: its machine and what the vendor keeps about it. */
export class Sprite {
  readonly id = randomUUID();
  readonly created = new Date();
  readonly machine: Machine;
  readonly services: Services;
  readonly tasks: Tasks;
  readonly sessions = new Map<string, Session>();
  readonly checkpoints: Checkpoint[] = [];
  status: 'cold' | 'warm' | 'running' = 'cold';
  /** All that were set, in order. */
  readonly policies: Rule[][] = [];
  labels: string[] = [];
  urlSettings: unknown = { auth: 'sprite' };
  /** How often it was woken after a pause, and how often its processes were gone. */
  wakes = { warm: 0, cold: 0 };
  /** How often its files were replaced by a checkpoint. */
  restored = 0;
  private readonly cable = newCable();
  private requests = 0;
  private quietSince = Date.now();
  private changing: Promise<void> = Promise.resolve();
  private readonly clock: NodeJS.Timeout;
  private everRan = false;
  private removed = false;

  constructor(
    readonly name: string,
    folder: string,
    private readonly network: SpritesNetwork,
    private readonly timing: Timing,
  ) {
    this.machine = new Machine(folder, this.cable);
    this.services = new Services(this.machine);
    this.tasks = new Tasks(join(folder, 'api'));
    this.clock = setInterval(() => this.look(), Math.max(10, timing.pauseMs / 20)).unref();
  }

  /** What the network policy allows now; without rules, everything. */
  get rules(): readonly Rule[] {
    return this.policies.at(-1) ?? [];
  }

  describe() {
    return {
      id: this.id,
      name: this.name,
      status: this.status,
      organization: 'fake',
      url: `https://${this.name}.sprites.example`,
      url_settings: this.urlSettings,
      labels: this.labels,
      created_at: this.created,
      updated_at: this.created,
    };
  }

  /** Wakes the machine, keeps it awake for `work`, and returns its result. */
  async awake<T>(work: () => T | Promise<T>): Promise<T> {
    this.requests += 1;
    try {
      await this.wake();
      return await work();
    } finally {
      this.requests -= 1;
      this.quietSince = Date.now();
    }
  }

  wake(): Promise<void> {
    return this.change(async () => {
      this.quietSince = Date.now();
      if (this.status === 'running') return;
      if (this.status === 'warm') {
        this.machine.signalAll('SIGCONT');
        this.wakes.warm += 1;
      } else {
        await this.machine.start();
        await this.network.serve(this.name, this.cable.host, () => this.rules);
        await this.tasks.listen();
        if (this.everRan) this.wakes.cold += 1;
        this.everRan = true;
        this.services.startWanted();
      }
      this.status = 'running';
    });
  }

  /** As after 30 quiet seconds: processes stop in place and all connections break. */
  pause(): Promise<void> {
    return this.change(async () => {
      if (this.status !== 'running') return;
      this.status = 'warm';
      this.tasks.clear();
      for (const session of this.sessions.values()) session.disconnect();
      this.machine.signalAll('SIGSTOP');
      this.quietSince = Date.now();
    });
  }

  /** As after a long pause: all processes are gone. */
  async goCold(): Promise<void> {
    await this.pause();
    await this.change(() => this.stop());
  }

  async restart(): Promise<void> {
    await this.goCold();
    await this.wake();
  }

  addSession(session: Session): void {
    this.sessions.set(session.id, session);
  }

  /** The machine shows its checkpoints in `/.sprite/checkpoints`. */
  async checkpoint(comment: string | undefined): Promise<string> {
    const id = `v${this.checkpoints.length + 1}`;
    const folder = join(this.machine.folder, 'api', 'checkpoints', id);
    await this.machine.save(folder);
    this.checkpoints.push({ id, create_time: new Date(), folder, ...(comment && { comment }) });
    return id;
  }

  /** Replaces the files and starts the machine again, a while after it was asked to. */
  async restore(id: string): Promise<void> {
    const found = this.checkpoints.find((each) => each.id === id);
    if (found === undefined) throw new Error(`there is no checkpoint ${id}`);
    await delay(this.timing.restoreMs);
    await this.change(async () => {
      await this.stop();
      await this.machine.restore(found.folder);
      // The vendor does not document whether a restore keeps policies.
      this.policies.push([]);
      this.restored += 1;
    });
    await this.wake();
  }

  async remove(): Promise<void> {
    this.removed = true;
    clearInterval(this.clock);
    await this.change(async () => {
      for (const session of this.sessions.values()) session.dispose();
      await this.machine.remove();
      await this.tasks.close();
    }, true);
  }

  private async stop(): Promise<void> {
    if (this.status === 'warm') this.machine.signalAll('SIGCONT');
    this.status = 'cold';
    this.tasks.clear();
    for (const session of this.sessions.values()) session.disconnect();
    await this.machine.stop();
  }

  private look(): void {
    if (this.removed) return;
    const now = Date.now();
    const busy =
      this.requests > 0 ||
      this.tasks.live.length > 0 ||
      [...this.sessions.values()].some((session) => session.exitCode === undefined);
    if (busy) this.quietSince = now;
    const quietMs = now - this.quietSince;
    if (this.status === 'running' && quietMs > this.timing.pauseMs) void this.pause();
    if (this.status === 'warm' && quietMs > this.timing.coldMs) void this.goCold();
  }

  /** One change of state at a time. */
  private change(work: () => Promise<void>, last = false): Promise<void> {
    const next = this.changing.then(async () => {
      if (this.removed && !last) throw new Error('the sprite is gone');
      await work();
    });
    this.changing = next.catch(() => undefined);
    return next;
  }
}

/** Waits until something is so; for states that other processes reach. */
export async function until(isSo: () => boolean | Promise<boolean>, ms = 20_000): Promise<void> {
  const end = Date.now() + ms;
  while (!(await isSo())) {
    if (Date.now() > end) throw new Error('it did not happen in time');
    await delay(10);
  }
}
