import type { WarmRecipe } from './warm-recipe.js';

/** How long after its last session a recipe is still kept ready. */
const RECENT_MS = 30 * 60_000;
/** Bounds the number of remembered recipes; more are never useful. */
const MOST_REMEMBERED = 256;
const FIRST_RETRY_MS = 30_000;
const LONGEST_RETRY_MS = 30 * 60_000;

interface Demand {
  recipe: WarmRecipe;
  usedAt: number;
  failures: number;
  retryAt: number;
}

/** Decides from recent sessions which sandboxes to keep ready. Times are monotonic milliseconds. */
export class WarmDemand {
  /** The most recently used one is last. */
  private readonly demands = new Map<string, Demand>();

  /** Records that a session began that could use a sandbox with this recipe. */
  note(recipe: WarmRecipe, now: number): void {
    const before = this.demands.get(recipe.key);
    this.demands.delete(recipe.key);
    this.demands.set(recipe.key, { failures: 0, retryAt: now, ...before, recipe, usedAt: now });
    const [oldest] = this.demands.keys();
    if (this.demands.size > MOST_REMEMBERED && oldest !== undefined) this.demands.delete(oldest);
  }

  /** The environments of the recipes in demand. */
  environments(): string[] {
    const setups = [...this.demands.values()].map(({ recipe }) => recipe.setup);
    return [...new Set(setups.flatMap((setup) => (setup === null ? [] : [setup.id])))];
  }

  /**
   * @param environmentIds the environments to check
   * @param versions the current versions of these environments; an environment without one gets no more sessions.
   */
  forgetOutdated(environmentIds: readonly string[], versions: ReadonlyMap<string, number>): void {
    for (const [key, { recipe }] of this.demands) {
      const { setup } = recipe;
      if (setup === null || !environmentIds.includes(setup.id)) continue;
      if (setup.version < (versions.get(setup.id) ?? Infinity)) this.demands.delete(key);
    }
  }

  /**
   * The sandboxes to keep ready, one entry each: one of each recipe, the most recently used first, then a second of
   * each, and so on.
   */
  wanted(room: number, now: number): WarmRecipe[] {
    for (const [key, { usedAt }] of this.demands) {
      if (now - usedAt > RECENT_MS) this.demands.delete(key);
    }
    const recipes = [...this.demands.values()].map(({ recipe }) => recipe).toReversed();
    if (recipes.length === 0) return [];
    return Array.from({ length: room }, (_, index) => recipes[index % recipes.length]!);
  }

  /** May a sandbox with this recipe be made now? After a failure it must wait. */
  isDue({ key }: WarmRecipe, now: number): boolean {
    return (this.demands.get(key)?.retryAt ?? now) <= now;
  }

  succeeded({ key }: WarmRecipe): void {
    const demand = this.demands.get(key);
    if (demand) demand.failures = 0;
  }

  /** Records a failure and delays the next attempt, longer each time. @returns the number of failures in a row */
  failed({ key }: WarmRecipe, now: number): number {
    const demand = this.demands.get(key);
    if (!demand) return 1;
    demand.retryAt = now + Math.min(FIRST_RETRY_MS * 2 ** demand.failures, LONGEST_RETRY_MS);
    demand.failures += 1;
    return demand.failures;
  }
}
