import type { HostSign } from '../sessions/lost-hosts.repository.js';

interface Silence {
  seen: string;
  since: number;
}

/**
 * Tells which hosts are lost. A host is only if this process itself has watched it be silent for all of that time: what
 * the database says after an outage, or after nobody was there to look, is as old as the outage.
 */
export class HostWatch {
  private readonly silences = new Map<string, Silence>();
  private lastLook: number | undefined;

  constructor(private readonly limits: { lostAfterMs: number; longestGapMs: number }) {}

  /**
   * Takes in what the database says now.
   * @param now monotonic, milliseconds.
   * @returns the hosts that are lost.
   */
  observe(signs: readonly HostSign[], now: number): HostSign[] {
    const { lostAfterMs, longestGapMs } = this.limits;
    if (this.lastLook === undefined || now - this.lastLook > longestGapMs) this.silences.clear();
    this.lastLook = now;
    const keys = new Set(signs.map(keyOf));
    for (const key of this.silences.keys()) if (!keys.has(key)) this.silences.delete(key);
    return signs.filter((sign) => {
      const known = this.silences.get(keyOf(sign));
      if (known?.seen === sign.seen) return now - known.since >= lostAfterMs;
      this.silences.set(keyOf(sign), { seen: sign.seen, since: now });
      return false;
    });
  }
}

function keyOf({ driver, host }: HostSign): string {
  return `${driver} ${host}`;
}
