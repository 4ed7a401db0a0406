import { RateLimit } from '../../common/rate-limit.js';
import type { RelayLimits } from './limits.js';

/** Whether a name has an address. `busy`: this sandbox has too many lookups. */
export type Existence = 'found' | 'missing' | 'failed' | 'busy';

const FOUND_MS = 30_000;
const MISSING_MS = 5_000;
const MAX_KNOWN = 1024;

/** Looks up for one sandbox whether names exist, within its limits. Caches answers for a short time. */
export class NameLookups {
  /** Sorted by the time of the lookup. */
  private readonly known = new Map<string, { existence: Existence; until: number }>();
  private readonly underWay = new Map<string, Promise<Existence>>();
  private readonly rate: RateLimit;

  /** @param look resolves to whether the name has an address, rejects if the lookup fails */
  constructor(
    private readonly look: (name: string) => Promise<boolean>,
    private readonly limits: RelayLimits,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.rate = new RateLimit(limits.lookupsPerSecond, now);
  }

  async existenceOf(name: string): Promise<Existence> {
    const known = this.known.get(name);
    if (known !== undefined && known.until > this.now()) return known.existence;
    const asked = this.underWay.get(name);
    if (asked) return asked;
    if (this.underWay.size >= this.limits.lookups || !this.rate.take()) return 'busy';
    const looking = this.lookUp(name).finally(() => this.underWay.delete(name));
    this.underWay.set(name, looking);
    return looking;
  }

  private async lookUp(name: string): Promise<Existence> {
    try {
      const existence = (await this.look(name)) ? 'found' : 'missing';
      this.known.delete(name);
      const oldest = this.known.keys().next();
      if (this.known.size >= MAX_KNOWN && !oldest.done) this.known.delete(oldest.value);
      const lasts = existence === 'found' ? FOUND_MS : MISSING_MS;
      this.known.set(name, { existence, until: this.now() + lasts });
      return existence;
    } catch {
      return 'failed';
    }
  }
}
