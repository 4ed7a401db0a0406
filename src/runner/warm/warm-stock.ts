import { randomUUID } from 'node:crypto';
import type { EnvironmentsService } from '../../environments/environments.service.js';
import type { SandboxDriver } from '../../sandboxes/sandbox-driver.js';
import type { ClaimedTurn } from '../../sessions/turn-lease.repository.js';
import { insist } from '../insist.js';
import { SandboxSweep } from '../sandbox-sweep.js';
import type { SandboxesRepository, SandboxPlace } from '../sandboxes.repository.js';
import { prepareWarm } from './prepare-warm.js';
import type { WarmRecipe } from './warm-recipe.js';
import type { WarmSandboxesRepository } from './warm-sandboxes.repository.js';

const PREPARE_LIMIT_MS = 15 * 60_000;

interface Kept {
  id: string;
  recipe: WarmRecipe;
  ready: boolean;
  /** Ends its preparation. */
  given: AbortController;
}

export interface WarmStockParts {
  records: WarmSandboxesRepository;
  sandboxes: SandboxesRepository;
  environments: EnvironmentsService;
  driver: SandboxDriver;
  place: SandboxPlace;
  /** How long after this process's death others leave its sandboxes alone. */
  leaseSeconds: number;
}

/** The sandboxes that this process keeps ready: made, given to a session or destroyed, and never taken back. */
export class WarmStock {
  private readonly keeper = randomUUID();
  private readonly sweep: SandboxSweep;
  /** The one made first comes first. */
  private readonly kept = new Map<string, Kept>();

  constructor(private readonly parts: WarmStockParts) {
    this.sweep = new SandboxSweep(parts.sandboxes, parts.driver, parts.place);
  }

  get ready(): number {
    return [...this.kept.values()].filter(({ ready }) => ready).length;
  }

  /** Those that come to be ready and those that are being destroyed included. */
  get size(): number {
    return this.kept.size;
  }

  /** Makes one. @throws what the driver does, once nothing is left of it, or the signal's reason, and it is left */
  async prepare(recipe: WarmRecipe, stop: AbortSignal): Promise<void> {
    const { records, place, driver, environments, leaseSeconds } = this.parts;
    const one: Kept = { id: randomUUID(), recipe, ready: false, given: new AbortController() };
    const limit = AbortSignal.timeout(PREPARE_LIMIT_MS);
    const signal = AbortSignal.any([stop, one.given.signal, limit]);
    await records.record(one.id, place, this.keeper, leaseSeconds);
    this.kept.set(one.id, one);
    try {
      await prepareWarm({ driver, environments, recipe, sandboxId: one.id, signal });
      signal.throwIfAborted();
      one.ready = true;
    } catch (error) {
      if (!stop.aborted) await this.destroy(one);
      throw error;
    }
  }

  /**
   * Gives a turn's session one that was made by the recipe.
   * @returns its id; `undefined` when there is none, or the turn is somebody else's by now
   */
  async give(
    turn: ClaimedTurn,
    recipe: WarmRecipe,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    for (let one = this.take(recipe); one !== undefined; one = this.take(recipe)) {
      const { id } = one;
      const there = await this.parts.driver.exists({ sandboxId: id, signal }).catch(() => false);
      const adopted =
        there && (await insist(signal, () => this.parts.records.adopt(turn, id, this.keeper)));
      if (adopted) return id;
      void this.destroy(one).catch(() => undefined);
      if (there) return undefined;
    }
    return undefined;
  }

  /** Destroys what is ready and, made by these recipes, one for each, not wanted. */
  async keepOnly(wanted: readonly WarmRecipe[]): Promise<void> {
    const open = wanted.map(({ key }) => key);
    for (const one of [...this.kept.values()]) {
      const at = open.indexOf(one.recipe.key);
      if (at >= 0) open.splice(at, 1);
      else if (one.ready) await this.destroy(one);
    }
  }

  /** The first of these of which there is not one for each. */
  missing(wanted: readonly WarmRecipe[]): WarmRecipe | undefined {
    const there = [...this.kept.values()].map(({ recipe }) => recipe.key);
    return wanted.find(({ key }) => {
      const at = there.indexOf(key);
      if (at >= 0) there.splice(at, 1);
      return at < 0;
    });
  }

  /** Says that this process is alive, and lets go of what somebody else has taken for a dead one's. */
  async renew(): Promise<void> {
    if (this.kept.size === 0) return;
    const asked = [...this.kept.values()];
    const ids = asked.map(({ id }) => id);
    const { records, leaseSeconds } = this.parts;
    const ours = await records.renew(this.keeper, ids, leaseSeconds);
    for (const one of asked) {
      if (ours.has(one.id)) continue;
      this.kept.delete(one.id);
      one.given.abort();
    }
  }

  /** Destroys all of them. */
  async clear(): Promise<void> {
    await Promise.all([...this.kept.values()].map((one) => this.destroy(one)));
  }

  /** Leaves what is still there to whoever reaps. */
  async release(): Promise<void> {
    await this.parts.records.release(this.keeper);
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
      await this.sweep.destroy({ sandboxId: one.id, sessionId: one.id });
    } finally {
      // One that resists is not renewed any more, and so is for reapers to try again.
      this.kept.delete(one.id);
    }
  }
}
