import { type HostHeartbeat, LostHostsRepository } from '../turns/lost-hosts.repository.js';
import { Injectable, Logger } from '@nestjs/common';
import { Clock } from '../common/clock.js';
import { AppConfig } from '../config/app-config.js';
import { EndedTurns } from '../sessions/ended-turns.js';
import { WorkersRepository } from '../sessions/workers.repository.js';

interface Silence {
  seen: string;
  since: number;
}

/**
 * Determines which hosts are lost. A host counts as lost only if this process has itself seen no heartbeat for the
 * whole time: after an outage, or when no process was running, the heartbeats in the database are outdated.
 */
export class HostWatch {
  private readonly silences = new Map<string, Silence>();
  private lastLook: number | undefined;

  constructor(private readonly limits: { lostAfterMs: number; longestGapMs: number }) {}

  /**
   * Processes the current heartbeats from the database.
   * @param now monotonic, milliseconds.
   * @returns the hosts that are lost.
   */
  observe(heartbeats: readonly HostHeartbeat[], now: number): HostHeartbeat[] {
    const { lostAfterMs, longestGapMs } = this.limits;
    if (this.lastLook === undefined || now - this.lastLook > longestGapMs) this.silences.clear();
    this.lastLook = now;
    const keys = new Set(heartbeats.map(keyOf));
    for (const key of this.silences.keys()) if (!keys.has(key)) this.silences.delete(key);
    return heartbeats.filter((heartbeat) => {
      const known = this.silences.get(keyOf(heartbeat));
      if (known?.seen === heartbeat.seen) return now - known.since >= lostAfterMs;
      this.silences.set(keyOf(heartbeat), { seen: heartbeat.seen, since: now });
      return false;
    });
  }
}

function keyOf({ driver, host }: HostHeartbeat): string {
  return `${driver} ${host ?? ''}`;
}

const LONGEST_INTERVAL_MS = 10_000;

/** Ends the turns of hosts whose workers have sent no heartbeat for too long, and marks their sandboxes for deletion. */
@Injectable()
export class LostHosts {
  private readonly logger = new Logger('Maintenance');
  private readonly intervalMs: number;
  private readonly watch: HostWatch;
  /** Monotonic, milliseconds. */
  private nextCheckAt = 0;

  constructor(
    private readonly repository: LostHostsRepository,
    private readonly workers: WorkersRepository,
    private readonly endedTurns: EndedTurns,
    private readonly clock: Clock,
    private readonly config: AppConfig,
  ) {
    this.intervalMs = Math.min(LONGEST_INTERVAL_MS, (config.hostLostSeconds * 1000) / 8);
    this.watch = new HostWatch({
      lostAfterMs: config.hostLostSeconds * 1000,
      longestGapMs: Math.max(this.intervalMs, LostHosts.EVERY_MS) * 3,
    });
  }

  /** The interval at which {@link check} must be called. */
  static readonly EVERY_MS = 500;

  /** Looks for lost hosts, but no more often than necessary. */
  async check(): Promise<void> {
    if (this.clock.monotonic() < this.nextCheckAt) return;
    try {
      const heartbeats = await this.repository.heartbeats(this.config.hostLostSeconds);
      const lost = this.watch.observe(heartbeats, this.clock.monotonic());
      for (const heartbeat of lost) await this.giveUp(heartbeat);
      await this.workers.forget(Math.max(3600, this.config.hostLostSeconds * 2));
    } finally {
      this.nextCheckAt = this.clock.monotonic() + this.intervalMs;
    }
  }

  private async giveUp(heartbeat: HostHeartbeat): Promise<void> {
    const ended = await this.repository.giveUp(heartbeat);
    // A driver without hosts stays lost, so this repeats for turns that were queued since. It logs only if there were
    // any.
    if (!ended || (heartbeat.host === null && ended.length === 0)) return;
    for (const turn of ended) this.endedTurns.note(turn, 'failed');
    const sessions = ended.map(({ sessionId }) => sessionId).join(', ');
    this.logger.error(
      `${lostName(heartbeat)} is lost: ${ended.length} turns ended` +
        (ended.length > 0 ? ` (sessions ${sessions})` : ''),
    );
  }
}

function lostName({ driver, host }: HostHeartbeat): string {
  return host === null ? `Every worker of the driver ${driver}` : `The host ${host}`;
}
