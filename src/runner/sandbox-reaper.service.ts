import {
  type BeforeApplicationShutdown,
  Inject,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { Doorbell } from '../event-log/doorbell.js';
import type { SandboxDriver } from '../sandboxes/sandbox-driver.js';
import { SANDBOX_DRIVER, SandboxHost } from '../sandboxes/sandbox-host.js';
import { SandboxesRepository } from './sandboxes.repository.js';
import { Wakeup } from './wakeup.js';
import { Worker } from './worker.service.js';

const POLL_MS = 2_000;
/** How often sandboxes that nobody has on record are looked for, in polls. */
const ORPHANS_EVERY = 30;
const DESTROY_LIMIT_MS = 60_000;
const PARALLEL = 4;

/** Destroys the sandboxes that were given up: of ended or deleted sessions, idle for too long, or without a record. */
@Injectable()
export class SandboxReaper implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger(SandboxReaper.name);
  private readonly wakeup = new Wakeup();
  private readonly stopping = new AbortController();
  private loop: Promise<void> = Promise.resolve();
  private endSubscription: () => void = () => undefined;

  constructor(
    private readonly repository: SandboxesRepository,
    private readonly worker: Worker,
    private readonly doorbell: Doorbell,
    private readonly config: AppConfig,
    private readonly host: SandboxHost,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
  ) {}

  onApplicationBootstrap(): void {
    this.endSubscription = this.doorbell.on('work.rang', () => this.wakeup.ring());
    this.loop = this.run();
  }

  async beforeApplicationShutdown(): Promise<void> {
    this.stopping.abort();
    this.endSubscription();
    this.wakeup.ring();
    await this.loop;
  }

  private async run(): Promise<void> {
    for (let round = 0; !this.stopping.signal.aborted; round += 1) {
      const heard = this.wakeup.heard();
      try {
        await this.repository.doomIdle(this.config.sandbox.idleTtlSeconds);
        await this.destroyAll(await this.repository.doomed(this.driver.name, this.host.name));
        if (round % ORPHANS_EVERY === 0) await this.destroyAll(await this.orphans());
      } catch (error) {
        this.logger.warn(`Sandboxes could not be reaped: ${String(error)}`);
      }
      await this.wakeup.wait(heard, POLL_MS);
    }
  }

  /** A sandbox's record is written before it is made: one that is listed first and not on record then has none. */
  private async orphans(): Promise<string[]> {
    const listed = await this.driver.list({ signal: this.stopping.signal });
    if (listed.length === 0) return [];
    const known = await this.repository.known(listed);
    const orphans = listed.filter((id) => !known.has(id));
    if (orphans.length > 0) this.logger.warn(`Sandboxes without a session: ${orphans.join(', ')}`);
    return orphans;
  }

  private async destroyAll(sandboxIds: readonly string[]): Promise<void> {
    const queue = [...sandboxIds];
    const destroyNext = async (): Promise<void> => {
      for (let id = queue.shift(); id !== undefined; id = queue.shift()) {
        if (this.stopping.signal.aborted) return;
        await this.destroy(id);
      }
    };
    await Promise.all(Array.from({ length: PARALLEL }, destroyNext));
  }

  private async destroy(sandboxId: string): Promise<void> {
    try {
      const signal = AbortSignal.timeout(DESTROY_LIMIT_MS);
      // The first one ends what runs; the second removes what a runner that was just stopping may have made since.
      await this.driver.destroy({ sandboxId, signal });
      await this.worker.whenIdle(sandboxId);
      await this.driver.destroy({ sandboxId, signal });
      await this.repository.forget(sandboxId);
    } catch (error) {
      this.logger.warn(`Sandbox ${sandboxId} could not be destroyed yet: ${String(error)}`);
    }
  }
}
