import { randomUUID } from 'node:crypto';
import { retry } from '../../common/database-retry.js';
import type { SandboxDriver } from '../driver/sandbox-driver.js';
import type { SandboxPlace } from '../sandbox-host.js';
import { SandboxSweep } from './sandbox-sweep.js';
import type { Owner, SandboxesRepository, TurnClaim } from './sandboxes.repository.js';
import { prepareWarm, type WarmRecipe, type WarmSetups } from './warm-recipe.js';

const PREPARE_LIMIT_MS = 15 * 60_000;

interface Kept {
  id: string;
  recipe: WarmRecipe;
  ready: boolean;
  /** Aborts the preparation of the sandbox. */
  given: AbortController;
}

export interface WarmStockParts {
  records: SandboxesRepository;
  setups: WarmSetups;
  driver: SandboxDriver;
  place: SandboxPlace;
  /** How long other processes leave this process's sandboxes alone after it has died. */
  leaseSeconds: number;
  /** The longest time for making one. Default: 15 minutes. */
  limitMs?: number;
}

/** The sandboxes that this process keeps ready. Each is given to one session or destroyed, and never taken back. */
export class WarmStock {
  private readonly owner: Owner;
  private readonly sweep: SandboxSweep;
  /** The oldest one is first. */
  private readonly kept = new Map<string, Kept>();

  constructor(private readonly parts: WarmStockParts) {
    this.owner = { name: randomUUID(), seconds: parts.leaseSeconds };
    this.sweep = new SandboxSweep(parts.records, parts.driver, parts.place);
  }

  get ready(): number {
    return [...this.kept.values()].filter(({ ready }) => ready).length;
  }

  /** Including sandboxes that are being made or destroyed. */
  get size(): number {
    return this.kept.size;
  }

  /** Makes one. @throws the driver's error after removing the sandbox, or the signal's reason without removing it */
  async prepare(recipe: WarmRecipe, stop: AbortSignal): Promise<void> {
    const { records, place, driver, setups } = this.parts;
    const one: Kept = { id: randomUUID(), recipe, ready: false, given: new AbortController() };
    const limit = AbortSignal.timeout(this.parts.limitMs ?? PREPARE_LIMIT_MS);
    const signal = AbortSignal.any([stop, one.given.signal, limit]);
    await records.record(one.id, 'warming', place, this.owner);
    this.kept.set(one.id, one);
    try {
      await prepareWarm({ driver, setups, recipe, sandboxId: one.id, signal });
      signal.throwIfAborted();
      one.ready = await records.markReady(one.id, this.owner.name);
      if (!one.ready) this.kept.delete(one.id);
    } catch (error) {
      if (!stop.aborted) await this.destroy(one);
      throw error;
    }
  }

  /**
   * Hands a ready sandbox that was made by this recipe to the session of a turn.
   * @returns its id; `undefined` if there is none, or if the turn belongs to another worker by now
   */
  async give(
    turn: TurnClaim,
    recipe: WarmRecipe,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    for (let one = this.take(recipe); one !== undefined; one = this.take(recipe)) {
      const { id } = one;
      const existence = await this.parts.driver
        .exists({ sandboxId: id, signal })
        .catch(() => 'unknown' as const);
      if (existence === 'unknown') {
        // The sandbox stays ready for a later session.
        this.kept.set(id, one);
        return undefined;
      }
      const there = existence === 'yes';
      const adopted =
        there && (await retry(signal, () => this.parts.records.adopt(turn, id, this.owner.name)));
      if (adopted) return id;
      void this.destroy(one).catch(() => undefined);
      if (there) return undefined;
    }
    return undefined;
  }

  /** Destroys ready sandboxes that are not wanted. Each entry of `wanted` keeps one sandbox. */
  async keepOnly(wanted: readonly WarmRecipe[]): Promise<void> {
    const open = wanted.map(({ key }) => key);
    for (const one of [...this.kept.values()]) {
      const at = open.indexOf(one.recipe.key);
      if (at >= 0) open.splice(at, 1);
      else if (one.ready) await this.destroy(one);
    }
  }

  /** The first entry of `wanted` without a sandbox. */
  missing(wanted: readonly WarmRecipe[]): WarmRecipe | undefined {
    const there = [...this.kept.values()].map(({ recipe }) => recipe.key);
    return wanted.find(({ key }) => {
      const at = there.indexOf(key);
      if (at >= 0) there.splice(at, 1);
      return at < 0;
    });
  }

  /** Renews this process's hold on its sandboxes, and drops those that another process has taken over. */
  async renew(): Promise<void> {
    if (this.kept.size === 0) return;
    const kept = [...this.kept.values()];
    const ids = kept.map(({ id }) => id);
    const ours = await this.parts.records.renew(ids, this.owner);
    for (const one of kept) {
      if (ours.has(one.id)) continue;
      this.kept.delete(one.id);
      one.given.abort();
    }
  }

  /** Destroys all of them. */
  async clear(): Promise<void> {
    await Promise.all([...this.kept.values()].map((one) => this.destroy(one)));
  }

  /** Leaves the remaining sandboxes to reapers. */
  async release(): Promise<void> {
    await this.parts.records.release(this.owner.name);
  }

  private take({ key }: WarmRecipe): Kept | undefined {
    for (const one of this.kept.values()) {
      if (!one.ready || one.recipe.key !== key) continue;
      this.kept.delete(one.id);
      return one;
    }
    return undefined;
  }

  private async destroy(one: Kept): Promise<void> {
    one.ready = false;
    try {
      if (!(await this.parts.records.discard(one.id, this.owner.name))) return;
      await this.sweep.destroy({ sandboxId: one.id, sessionId: one.id });
    } finally {
      // If it cannot be destroyed, it is no longer renewed, and a reaper will try again.
      this.kept.delete(one.id);
    }
  }
}
