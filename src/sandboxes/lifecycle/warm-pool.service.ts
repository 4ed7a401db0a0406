import { setTimeout as delay } from 'node:timers/promises';
import {
  type BeforeApplicationShutdown,
  Inject,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { Clock } from '../../common/clock.js';
import { isDatabaseUnavailable } from '../../common/database-errors.js';
import { AppConfig } from '../../config/app-config.js';
import { Metrics } from '../../metrics/metrics.js';
import type { SandboxDriver } from '../driver/sandbox-driver.js';
import { SANDBOX_DRIVER, SandboxHost } from '../sandbox-host.js';
import { SandboxRoom } from '../sandbox-room.js';
import { Condition } from '../../common/async.js';
import { SandboxesRepository, type TurnClaim } from './sandboxes.repository.js';
import { WarmDemand } from './warm-demand.js';
import { type WarmRecipe, WarmSetups } from './warm-recipe.js';
import { WarmStock } from './warm-stock.js';

const POLL_MS = 5_000;
/** The pool makes nothing for this long after a turn was provisioned, so that the turn has the machine to itself. */
const QUIET_MS = 1_000;
/**
 * After waiting this long for a quiet moment, the pool makes one anyway. Otherwise a busy process would never have any.
 */
const PATIENCE_MS = 30_000;
const DRAIN_LIMIT_MS = 12_000;

/**
 * Keeps up to `WARM_POOL` sandboxes ready for sessions like those that this process has recently started. A session
 * adopts a ready sandbox if there is one with its recipe. Otherwise its sandbox is made as usual.
 */
@Injectable()
export class WarmPool implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger(WarmPool.name);
  private readonly room: number;
  private readonly stock: WarmStock;
  private readonly demand = new WarmDemand();
  private readonly condition = new Condition();
  private readonly stopping = new AbortController();
  private readonly count: (result: 'hit' | 'miss') => void;
  private loops: Promise<unknown> = Promise.resolve();
  /** The number of turns that are being provisioned, and the end of the quiet time after the last one. */
  private busy = 0;
  private quietUntil = 0;
  private waitingSince: number | undefined;

  constructor(
    records: SandboxesRepository,
    private readonly setups: WarmSetups,
    private readonly clock: Clock,
    @Inject(SANDBOX_DRIVER) driver: SandboxDriver,
    host: SandboxHost,
    private readonly config: AppConfig,
    private readonly sandboxRoom: SandboxRoom,
    metrics: Metrics,
  ) {
    this.room = config.sandbox.warmPool;
    const place = { driver: driver.name, host: host.name };
    const { leaseSeconds } = config;
    this.stock = new WarmStock({ records, setups, driver, place, leaseSeconds });
    metrics.gauge(
      'warm_sandboxes',
      'Sandboxes that this process keeps ready for sessions to come',
      () => this.stock.ready,
    );
    this.count = metrics.counters(
      'warm_starts',
      'Sessions of this process that found a sandbox ready, or did not; none while WARM_POOL is 0',
      'result',
      ['hit', 'miss'],
    );
  }

  get isOn(): boolean {
    return this.room > 0;
  }

  onApplicationBootstrap(): void {
    if (this.isOn) this.loops = Promise.all([this.fillLoop(), this.renewLoop()]);
  }

  async beforeApplicationShutdown(): Promise<void> {
    if (!this.isOn) return;
    this.stopping.abort();
    this.condition.notify();
    const limit = new AbortController();
    const cleared = this.loops
      .then(() => this.stock.clear())
      .catch((error: unknown) =>
        this.complain('Not all ready sandboxes could be destroyed', error),
      );
    await Promise.race([
      cleared,
      delay(DRAIN_LIMIT_MS, undefined, { signal: limit.signal }).catch(() => undefined),
    ]);
    limit.abort();
    // Reapers destroy what could not be destroyed in time.
    await this.stock.release().catch(() => undefined);
  }

  /** Stops the making of sandboxes while a turn is being provisioned. @returns call it when the turn is provisioned */
  hold(): () => void {
    this.busy += 1;
    return () => {
      this.busy -= 1;
      this.quietUntil = this.clock.monotonic() + QUIET_MS;
      this.condition.notify();
    };
  }

  /**
   * Gives a turn's session a sandbox that is ready.
   * @returns the sandbox; `undefined` if there is none of this recipe.
   */
  async adopt(
    turn: TurnClaim,
    recipe: WarmRecipe,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    this.demand.note(recipe, this.clock.monotonic());
    const sandboxId = await this.stock.give(turn, recipe, signal);
    this.count(sandboxId === undefined ? 'miss' : 'hit');
    if (sandboxId !== undefined) {
      this.logger.debug({ msg: 'The session has adopted a sandbox', sandbox: sandboxId });
    }
    return sandboxId;
  }

  private async fillLoop(): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      const seen = this.condition.seen();
      let more = false;
      try {
        more = await this.fill();
      } catch (error) {
        this.complain('The warm pool could not be filled', error);
      }
      const quiet = this.quietUntil - this.clock.monotonic();
      if (!more) await this.condition.wait(seen, quiet > 0 ? Math.ceil(quiet) : POLL_MS);
    }
  }

  /** Makes one missing sandbox. @returns whether there may be more to do at once */
  private async fill(): Promise<boolean> {
    if (!this.isTimely()) return false;
    const environments = this.demand.environments();
    this.demand.forgetOutdated(environments, await this.setups.currentVersions(environments));
    const now = this.clock.monotonic();
    const wanted = this.demand.wanted(this.room, now);
    // If room is short, ready sandboxes go first, because no session uses them yet.
    const isCramped = (await this.sandboxRoom.pressure(this.stopping.signal)) !== undefined;
    await this.stock.keepOnly(isCramped ? [] : wanted);
    if (isCramped || this.stock.size >= this.room) return false;
    const next = this.stock.missing(wanted.filter((recipe) => this.demand.isDue(recipe, now)));
    if (next === undefined) return false;
    await this.prepare(next);
    this.waitingSince = undefined;
    return true;
  }

  /** Is the process quiet, or has the pool waited for too long? */
  private isTimely(): boolean {
    const now = this.clock.monotonic();
    if (this.busy === 0 && now >= this.quietUntil) this.waitingSince = undefined;
    else this.waitingSince ??= now;
    return this.waitingSince === undefined || now - this.waitingSince >= PATIENCE_MS;
  }

  private async prepare(recipe: WarmRecipe): Promise<void> {
    const { signal } = this.stopping;
    try {
      await this.stock.prepare(recipe, signal);
      this.demand.succeeded(recipe);
    } catch (error) {
      if (signal.aborted) return;
      const failures = this.demand.failed(recipe, this.clock.monotonic());
      const whose = recipe.setup === null ? '' : ` of environment ${recipe.setup.id}`;
      // Logged once per row of failures, because sessions work without the pool and report the same error themselves.
      if (failures === 1) this.complain(`No sandbox${whose} could be made ready`, error);
    }
  }

  private async renewLoop(): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      await delay((this.config.leaseSeconds * 1000) / 3, undefined, { signal }).catch(
        () => undefined,
      );
      if (signal.aborted) return;
      await this.stock
        .renew()
        .catch((error: unknown) =>
          this.complain('The hold on ready sandboxes could not be renewed', error),
        );
    }
  }

  /** Logs an error, unless the database is unavailable: the queries themselves log that once. */
  private complain(what: string, error: unknown): void {
    if (!isDatabaseUnavailable(error)) this.logger.warn(`${what}: ${String(error)}`);
  }
}
