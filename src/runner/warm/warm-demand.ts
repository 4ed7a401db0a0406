import type { WarmRecipe } from './warm-recipe.js';

/** How long after its last session something is still kept ready. */
const RECENT_MS = 30 * 60_000;
/** More than can ever be of use; a bound for what is remembered. */
const MOST_REMEMBERED = 256;
const FIRST_RETRY_MS = 30_000;
const LONGEST_RETRY_MS = 30 * 60_000;

interface Wish {
  recipe: WarmRecipe;
  usedAt: number;
  failures: number;
  retryAt: number;
}

/** What the sessions of late were like, and so what to keep ready. Times are monotonic milliseconds. */
export class WarmDemand {
  /** The one used last comes last. */
  private readonly wishes = new Map<string, Wish>();

  /** A session has begun that could have used such a sandbox. */
  note(recipe: WarmRecipe, now: number): void {
    const before = this.wishes.get(recipe.key);
    this.wishes.delete(recipe.key);
    this.wishes.set(recipe.key, { failures: 0, retryAt: now, ...before, recipe, usedAt: now });
    const [oldest] = this.wishes.keys();
    if (this.wishes.size > MOST_REMEMBERED && oldest !== undefined) this.wishes.delete(oldest);
  }

  /** The environments that anything is wanted of. */
  environments(): string[] {
    const setups = [...this.wishes.values()].map(({ recipe }) => recipe.setup);
    return [...new Set(setups.flatMap((setup) => (setup === null ? [] : [setup.id])))];
  }

  /**
   * @param asked environments
   * @param versions of these, those that sessions created now would get; one without it gets no more sessions.
   */
  forgetOutdated(asked: readonly string[], versions: ReadonlyMap<string, number>): void {
    for (const [key, { recipe }] of this.wishes) {
      const { setup } = recipe;
      if (setup === null || !asked.includes(setup.id)) continue;
      if (setup.version < (versions.get(setup.id) ?? Infinity)) this.wishes.delete(key);
    }
  }

  /**
   * What to have ready in so much room: one of each, that used last first, then a second of each, and so on. An entry for
   * each sandbox.
   */
  wanted(room: number, now: number): WarmRecipe[] {
    for (const [key, { usedAt }] of this.wishes) {
      if (now - usedAt > RECENT_MS) this.wishes.delete(key);
    }
    const recipes = [...this.wishes.values()].map(({ recipe }) => recipe).toReversed();
    if (recipes.length === 0) return [];
    return Array.from({ length: room }, (_, index) => recipes[index % recipes.length]!);
  }

  /** May it be tried to make one now? */
  isDue({ key }: WarmRecipe, now: number): boolean {
    return (this.wishes.get(key)?.retryAt ?? now) <= now;
  }

  succeeded({ key }: WarmRecipe): void {
    const wish = this.wishes.get(key);
    if (wish) wish.failures = 0;
  }

  /** Making one has failed: it is left for a while, longer each time. @returns how often it has failed in a row */
  failed({ key }: WarmRecipe, now: number): number {
    const wish = this.wishes.get(key);
    if (!wish) return 1;
    wish.retryAt = now + Math.min(FIRST_RETRY_MS * 2 ** wish.failures, LONGEST_RETRY_MS);
    wish.failures += 1;
    return wish.failures;
  }
}
