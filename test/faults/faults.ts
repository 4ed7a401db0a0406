import { setTimeout as delay } from 'node:timers/promises';
import { type Cluster, LEASE_SECONDS } from './cluster.js';
import type { Random } from './random.js';
import type { ServiceProcess } from './service-process.js';
import type { Takeovers } from './takeovers.js';

interface Fault {
  name: string;
  /** How often, compared with the others. */
  weight: number;
  strike(): Promise<void>;
}

/** Strikes at seeded moments, one blow after the other, and mends each in time. */
export class Faults {
  readonly counts = new Map<string, number>();
  private readonly cluster: Cluster;
  private readonly random: Random;
  private readonly takeovers: Takeovers;
  /** What still has to be mended. */
  private readonly mending = new Set<Promise<void>>();
  private readonly busy = new Set<ServiceProcess>();
  private readonly kinds: Fault[];

  constructor(cluster: Cluster, random: Random, takeovers: Takeovers) {
    this.cluster = cluster;
    this.random = random;
    this.takeovers = takeovers;
    this.kinds = [
      this.onWorker('kill -9 worker', 4, (worker) => this.kill(worker)),
      this.onApi('kill -9 api', 2, (api) => this.kill(api)),
      this.onWorker('SIGTERM worker', 3, (worker) => this.stop(worker)),
      this.onApi('SIGTERM api', 2, (api) => this.stop(api)),
      this.onWorker('SIGSTOP worker beyond its lease', 2, (worker) =>
        this.freeze(worker, LEASE_SECONDS * 1000 + random.between(500, 3_000)),
      ),
      this.onWorker('SIGSTOP worker for a moment', 1, (worker) =>
        this.freeze(worker, random.between(100, LEASE_SECONDS * 700)),
      ),
      this.onApi('SIGSTOP api', 1, (api) => this.freeze(api, random.between(200, 4_000))),
      this.onAny('cut connections', 2, async (member) => member.proxy.cut()),
      this.onAny('reset connections', 2, async (member) => member.proxy.reset()),
      this.onAny('delay', 2, async (member) => {
        member.proxy.delay(random.between(20, 400));
        await delay(random.between(1_000, 5_000));
        member.proxy.heal();
      }),
      this.onAny('swallow answers', 3, async (member) => {
        member.proxy.swallowAnswers();
        await delay(random.between(100, 1_500));
        member.proxy.heal();
      }),
      this.onAny('black hole', 2, async (member) => {
        member.proxy.blackHole();
        await delay(random.between(1_000, 8_000));
        member.proxy.heal();
      }),
      this.onAny('connections die silently', 1, async (member) => {
        member.proxy.healNewOnly();
      }),
      { name: 'kill -9 PostgreSQL', weight: 1, strike: async () => cluster.database.crash() },
      { name: 'restart PostgreSQL', weight: 1, strike: async () => cluster.database.restart() },
      { name: 'kill -9 everything', weight: 0.5, strike: () => this.killEverything() },
    ];
  }

  /** Strikes until the signal, then mends everything. */
  async run(pauseMs: readonly [number, number], signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await delay(this.random.between(...pauseMs), undefined, { signal }).catch(() => undefined);
      if (signal.aborted) break;
      await this.strike(this.choose());
    }
    await Promise.all(this.mending);
    await this.cluster.heal();
  }

  private choose(): Fault {
    let left = this.random.next() * this.kinds.reduce((sum, { weight }) => sum + weight, 0);
    for (const kind of this.kinds) {
      left -= kind.weight;
      if (left < 0) return kind;
    }
    throw new Error('There is no fault');
  }

  private async strike(fault: Fault): Promise<void> {
    this.takeovers.disturb();
    await fault.strike();
    this.counts.set(fault.name, (this.counts.get(fault.name) ?? 0) + 1);
  }

  private onWorker = (name: string, weight: number, work: Blow): Fault =>
    this.on(() => this.cluster.workers, name, weight, work);
  private onApi = (name: string, weight: number, work: Blow): Fault =>
    this.on(() => this.cluster.apis, name, weight, work);
  private onAny = (name: string, weight: number, work: Blow): Fault =>
    this.on(() => this.cluster.processes, name, weight, work);

  /** The blow falls on one that is well, if there is one, and is mended beside the next blows. */
  private on(
    candidates: () => readonly ServiceProcess[],
    name: string,
    weight: number,
    work: Blow,
  ): Fault {
    return {
      name,
      weight,
      strike: async () => {
        const well = candidates().filter((member) => !this.busy.has(member));
        if (well.length === 0) return;
        const target = this.random.pick(well);
        this.busy.add(target);
        const mended = work(target).finally(() => {
          this.busy.delete(target);
          this.mending.delete(mended);
        });
        this.mending.add(mended);
      },
    };
  }

  /** Whether there was something else that could have been in the way from the beginning. */
  private kindOf(kind: string): string {
    return this.busy.size > 1 ? `${kind}, and more` : kind;
  }

  private async kill(target: ServiceProcess): Promise<void> {
    const ended = target.ended();
    await this.takeovers.during(this.kindOf('kill -9'), target.pid, () => target.signal('SIGKILL'));
    await ended;
    await delay(this.random.between(0, 3_000));
    await this.comeBack(target);
  }

  private async stop(target: ServiceProcess): Promise<void> {
    await this.takeovers.during(this.kindOf('SIGTERM'), target.pid, () => target.signal('SIGTERM'));
    const ended = target.ended();
    const timer = setTimeout(() => target.signal('SIGKILL'), 30_000);
    await ended;
    clearTimeout(timer);
    await this.comeBack(target);
  }

  private async freeze(target: ServiceProcess, milliseconds: number): Promise<void> {
    if (milliseconds > LEASE_SECONDS * 1000)
      await this.takeovers.during(this.kindOf('SIGSTOP'), target.pid, () =>
        target.signal('SIGSTOP'),
      );
    else target.signal('SIGSTOP');
    await delay(milliseconds);
    target.signal('SIGCONT');
  }

  private async killEverything(): Promise<void> {
    const targets = this.cluster.processes.filter((member) => !this.busy.has(member));
    for (const target of targets) this.busy.add(target);
    for (const target of targets) target.signal('SIGKILL');
    this.cluster.database.crash();
    await delay(this.random.between(0, 2_000));
    const back = Promise.all(targets.map((target) => this.comeBack(target)))
      .then(() => undefined)
      .finally(() => {
        for (const target of targets) this.busy.delete(target);
        this.mending.delete(back);
      });
    this.mending.add(back);
  }

  /** A process that finds no database does not start; whoever runs it starts it again. */
  private async comeBack(target: ServiceProcess): Promise<void> {
    for (;;) {
      if (target.running) await target.ended();
      target.spawn();
      if (await target.ready(60_000)) return;
      await delay(200);
    }
  }
}

type Blow = (target: ServiceProcess) => Promise<void>;
