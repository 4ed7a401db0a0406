import { Inject, Injectable } from '@nestjs/common';
import { AppConfig } from '../../config/app-config.js';
import type { SandboxDriver } from '../driver/sandbox-driver.js';
import { SANDBOX_DRIVER, SandboxHost } from '../sandbox-host.js';
import { SandboxesRepository } from './sandboxes.repository.js';
import { type WarmRecipe, WarmSetups } from './warm-recipe.js';
import { WarmStock } from './warm-stock.js';

/** What a setup takes besides its scripts, whose time the driver limits. */
const MARGIN_MS = 60_000;

/** Runs setups whose results sessions share, one at a time, each in a sandbox of its own that is destroyed afterwards. */
@Injectable()
export class SetupSandboxes {
  private readonly stock: WarmStock;

  constructor(
    @Inject(SANDBOX_DRIVER) driver: SandboxDriver,
    private readonly config: AppConfig,
    setups: WarmSetups,
    records: SandboxesRepository,
    host: SandboxHost,
  ) {
    const place = { driver: driver.name, host: host.name };
    const { leaseSeconds } = config;
    const limitMs = config.sandbox.builds.limitMs + MARGIN_MS;
    this.stock = new WarmStock({ records, setups, driver, place, leaseSeconds, limitMs });
  }

  /**
   * Resolves when the driver has the result.
   * @throws as `prepareWarm`, or the signal's reason
   */
  async run(recipe: WarmRecipe, signal: AbortSignal): Promise<void> {
    const renewing = setInterval(
      () => void this.stock.renew().catch(() => undefined),
      (this.config.leaseSeconds * 1000) / 3,
    );
    try {
      await this.stock.prepare(recipe, signal);
    } finally {
      // Reapers destroy what cannot be destroyed now.
      await this.stock.clear().catch(() => this.stock.release().catch(() => undefined));
      clearInterval(renewing);
    }
  }
}
