import { Inject, Injectable, Logger, type OnApplicationBootstrap } from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { describeLimits, softLimits, type SandboxDriver } from './driver/sandbox-driver.js';
import { SANDBOX_DRIVER } from './sandbox-host.js';

const LIMIT_MS = 20_000;

/** Says at the start how this host keeps the limits of sandboxes, so that nobody takes a watched limit for a hard one. */
@Injectable()
export class LimitLog implements OnApplicationBootstrap {
  private readonly logger = new Logger('Sandbox');

  constructor(
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
    private readonly config: AppConfig,
  ) {}

  async onApplicationBootstrap(): Promise<void> {
    if (this.config.role === 'api') return;
    try {
      const report = await this.driver.limits({ signal: AbortSignal.timeout(LIMIT_MS) });
      const line = `Limits of a sandbox: ${describeLimits(report)}`;
      if (softLimits(report).length === 0) this.logger.log(line);
      else this.logger.warn(`${line} (docs/operating.md, "Limits of sandboxes")`);
    } catch (error) {
      this.logger.warn(`The limits of sandboxes are not known: ${String(error)}`);
    }
  }
}
