import {
  type BeforeApplicationShutdown,
  Inject,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import type { SandboxDriver } from './driver/sandbox-driver.js';
import { SANDBOX_DRIVER } from './sandbox-host.js';

/** Makes what sandboxes share beside the start, so that the first session does not have to wait for all of it. */
@Injectable()
export class SharedPreparation implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger('Sandbox');
  private readonly stop = new AbortController();
  private running: Promise<void> | undefined;

  constructor(
    private readonly config: AppConfig,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
  ) {}

  onApplicationBootstrap(): void {
    const { prepareSandboxes, role } = this.config;
    if (prepareSandboxes && role !== 'api') this.running = this.prepare();
  }

  /** Before the driver closes. */
  async beforeApplicationShutdown(): Promise<void> {
    this.stop.abort();
    await this.running;
  }

  private async prepare(): Promise<void> {
    const { signal } = this.stop;
    let waited = false;
    try {
      await this.driver.prepareShared?.({
        signal,
        onProgress: (message) => {
          waited = true;
          this.logger.log(`Preparing the base system: ${message}`);
        },
      });
      if (waited) this.logger.log('The base system is ready');
    } catch (error) {
      if (signal.aborted) return;
      const reason = error instanceof Error ? error.message : String(error);
      this.logger.warn(`The base system is not ready; the first session tries again: ${reason}`);
    }
  }
}
