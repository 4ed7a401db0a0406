import { setTimeout as delay } from 'node:timers/promises';
import type { Cluster } from './cluster.js';

/** How long turns were without a worker, by what befell their worker. Milliseconds. */
export class Takeovers {
  readonly times = new Map<string, number[]>();
  private readonly cluster: Cluster;
  private disturbances = 0;
  private readonly watches = new Set<Promise<void>>();

  constructor(cluster: Cluster) {
    this.cluster = cluster;
  }

  /** Something else happened: times that were being taken do not tell of one fault alone. */
  disturb(): void {
    this.disturbances += 1;
  }

  /**
   * Watches the turns of a worker that is about to be hit.
   * @param hit does it; the time counts from when it begins.
   */
  async during(kind: string, pid: number | undefined, hit: () => void): Promise<void> {
    const turns = pid === undefined ? [] : await this.turnsOf(pid);
    const begun = performance.now();
    hit();
    if (turns.length === 0) return;
    const watch = this.watch(kind, turns, begun).finally(() => this.watches.delete(watch));
    this.watches.add(watch);
  }

  async settle(): Promise<void> {
    await Promise.all(this.watches);
  }

  private async turnsOf(pid: number): Promise<{ id: string; owner: string }[]> {
    return this.cluster.database.query(
      `SELECT id, lease_owner AS owner FROM turns WHERE status = 'running' AND lease_owner LIKE '%:' || $1 || ':%'`,
      [String(pid)],
    );
  }

  private async watch(
    kind: string,
    turns: { id: string; owner: string }[],
    begun: number,
  ): Promise<void> {
    const waiting = new Map(turns.map(({ id, owner }) => [id, owner]));
    const giveUpAt = begun + 120_000;
    const before = this.disturbances;
    while (waiting.size > 0 && performance.now() < giveUpAt) {
      const rows = await this.cluster.database.query<{
        id: string;
        owner: string | null;
        status: string;
      }>('SELECT id, lease_owner AS owner, status FROM turns WHERE id = ANY ($1)', [
        [...waiting.keys()],
      ]);
      const known = new Map(rows.map((row) => [row.id, row]));
      for (const [id, owner] of waiting) {
        const row = known.get(id);
        const ended = !row || row.status !== 'running';
        if (!ended && (row.owner === owner || row.owner === null)) continue;
        waiting.delete(id);
        const alone = this.disturbances === before;
        if (!ended)
          this.note(
            alone || kind.endsWith('more') ? kind : `${kind}, and more`,
            performance.now() - begun,
          );
      }
      if (waiting.size > 0) await delay(50);
    }
  }

  private note(kind: string, milliseconds: number): void {
    this.times.set(kind, [...(this.times.get(kind) ?? []), milliseconds]);
  }
}
