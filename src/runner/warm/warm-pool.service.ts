import { setTimeout as delay } from 'node:timers/promises';
import {
  type BeforeApplicationShutdown,
  Inject,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { Clock } from '../../common/clock.js';
import { isDatabaseUnavailable } from '../../common/database-unavailable.js';
import { AppConfig } from '../../config/app-config.js';
import { EnvironmentsService } from '../../environments/environments.service.js';
import { Metrics } from '../../metrics/metrics.js';
import type { SandboxDriver } from '../../sandboxes/sandbox-driver.js';
import { SANDBOX_DRIVER, SandboxHost } from '../../sandboxes/sandbox-host.js';
import type { ClaimedTurn } from '../../sessions/turn-lease.repository.js';
import { SandboxesRepository } from '../sandboxes.repository.js';
import { movedTo, type TurnPlan } from '../turn-plan.js';
import { Wakeup } from '../wakeup.js';
import { WarmDemand } from './warm-demand.js';
import { recipeOf, type WarmRecipe } from './warm-recipe.js';
import { WarmSandboxesRepository } from './warm-sandboxes.repository.js';
import { WarmStock } from './warm-stock.js';

const POLL_MS = 5_000;
/** How long a turn that was just provisioned has the machine to itself. */
const QUIET_MS = 1_000;
/** After waiting for so long for that, one is made all the same: else a busy process would never have any. */
const PATIENCE_MS = 30_000;
const DRAIN_LIMIT_MS = 12_000;

/**
 * Keeps up to `WARM_POOL` sandboxes ready for sessions like those that this process began of late. A session adopts one
 * instead of having one made, and is otherwise like any other; where none is ready, one is made as ever.
 */
@Injectable()
export class WarmPool implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger(WarmPool.name);
  private readonly room: number;
  private readonly stock: WarmStock;
  private readonly demand = new WarmDemand();
  private readonly wakeup = new Wakeup();
  private readonly stopping = new AbortController();
  private readonly count: (result: 'hit' | 'miss') => void;
  private loops: Promise<unknown> = Promise.resolve();
  /** Turns that are being provisioned, and until when it stays quiet after the last of them. */
  private busy = 0;
  private quietUntil = 0;
  private waitingSince: number | undefined;

  constructor(
    records: WarmSandboxesRepository,
    sandboxes: SandboxesRepository,
    private readonly environments: EnvironmentsService,
    private readonly clock: Clock,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
    host: SandboxHost,
    private readonly config: AppConfig,
    metrics: Metrics,
  ) {
    this.room = config.sandbox.warmPool;
    const place = { driver: driver.name, host: host.name };
    const { leaseSeconds } = config;
    this.stock = new WarmStock({ records, sandboxes, environments, driver, place, leaseSeconds });
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

  onApplicationBootstrap(): void {
    if (this.room > 0) this.loops = Promise.all([this.fillLoop(), this.renewLoop()]);
  }

  async beforeApplicationShutdown(): Promise<void> {
    if (this.room === 0) return;
    this.stopping.abort();
    this.wakeup.ring();
    const limit = new AbortController();
    const cleared = this.loops
      .then(() => this.stock.clear())
      .catch((error: unknown) => this.complain('Sandboxes that were kept ready are left', error));
    await Promise.race([
      cleared,
      delay(DRAIN_LIMIT_MS, undefined, { signal: limit.signal }).catch(() => undefined),
    ]);
    limit.abort();
    // What could not be destroyed in time is for the next process to reap.
    await this.stock.release().catch(() => undefined);
  }

  /** A turn is being provisioned: nothing is made beside it. @returns what says that it is no more */
  hold(): () => void {
    this.busy += 1;
    return () => {
      this.busy -= 1;
      this.quietUntil = this.clock.monotonic() + QUIET_MS;
      this.wakeup.ring();
    };
  }

  /**
   * Gives the session of a first turn, for which no sandbox was begun yet, one that is ready, if there is one.
   * @returns the plan, for the sandbox that the session has now.
   */
  async adopt(turn: ClaimedTurn, plan: TurnPlan, signal: AbortSignal): Promise<TurnPlan> {
    if (this.room === 0 || plan.sandboxId !== turn.session_id) return plan;
    // What does not work of it, the stage that needs it says.
    const hosts = () => this.driver.packageHosts({ signal });
    const recipe = await recipeOf(plan, hosts).catch(() => undefined);
    if (recipe === undefined) return plan;
    this.demand.note(recipe, this.clock.monotonic());
    const sandboxId = await this.stock.give(turn, recipe, signal);
    this.count(sandboxId === undefined ? 'miss' : 'hit');
    if (sandboxId === undefined) return plan;
    this.logger.debug({ msg: 'The session has adopted a sandbox', sandbox: sandboxId });
    return movedTo(plan, sandboxId, this.driver.layout(sandboxId));
  }

  private async fillLoop(): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      const heard = this.wakeup.heard();
      let more = false;
      try {
        more = await this.fill();
      } catch (error) {
        this.complain('Sandboxes are not kept ready', error);
      }
      const quiet = this.quietUntil - this.clock.monotonic();
      if (!more) await this.wakeup.wait(heard, quiet > 0 ? Math.ceil(quiet) : POLL_MS);
    }
  }

  /** Makes one that is missing. @returns whether there may be more to do at once */
  private async fill(): Promise<boolean> {
    if (!this.isTimely()) return false;
    const asked = this.demand.environments();
    this.demand.forgetOutdated(asked, await this.environments.currentVersionsUnscoped(asked));
    const now = this.clock.monotonic();
    const wanted = this.demand.wanted(this.room, now);
    await this.stock.keepOnly(wanted);
    if (this.stock.size >= this.room) return false;
    const next = this.stock.missing(wanted.filter((recipe) => this.demand.isDue(recipe, now)));
    if (next === undefined) return false;
    await this.prepare(next);
    this.waitingSince = undefined;
    return true;
  }

  /** Does nobody need the machine more, or has that been so for too long? */
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
      // Sessions go on without it, and run into the same; once in a row is enough.
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
        .catch((error: unknown) => this.complain('Ready sandboxes are not on record', error));
    }
  }

  /** That the database is away is said once for all, by those who ask it. */
  private complain(what: string, error: unknown): void {
    if (!isDatabaseUnavailable(error)) this.logger.warn(`${what}: ${String(error)}`);
  }
}
