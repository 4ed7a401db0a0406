import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import {
  type BeforeApplicationShutdown,
  Inject,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { isDatabaseUnavailable } from '../common/database-errors.js';
import { AppConfig } from '../config/app-config.js';
import { type BuiltVersion, EnvironmentBuilds } from '../environments/environment-builds.js';
import { EnvironmentsService } from '../environments/environments.service.js';
import { SavedEnvironments } from '../environments/saved-environments.js';
import type { SandboxDriver } from '../sandboxes/driver/sandbox-driver.js';
import { SetupSandboxes } from '../sandboxes/lifecycle/setup-sandboxes.service.js';
import { SetupFailed, type WarmRecipe } from '../sandboxes/lifecycle/warm-recipe.js';
import { SANDBOX_DRIVER } from '../sandboxes/sandbox-host.js';
import { SandboxRoom } from '../sandboxes/sandbox-room.js';
import { Redactor } from './redaction/redactor.js';
import { setupFailure } from './setup-failure.js';
import { needsWritableRoot } from './provision-script.js';
import { networkPolicyOf } from './network-policy.js';

const POLL_MS = 2_000;
const DRAIN_LIMIT_MS = 12_000;

/**
 * With `BUILD_ON_SAVE`, builds environments when they were created or changed instead of for their first session: one at
 * a time in this process, in a sandbox of its own that is destroyed afterwards. What sessions share stays with the driver.
 */
@Injectable()
export class SavedEnvironmentBuilder implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger('EnvironmentBuilds');
  private readonly stopping = new AbortController();
  private loop: Promise<unknown> | undefined;

  constructor(
    private readonly saved: SavedEnvironments,
    private readonly builds: EnvironmentBuilds,
    private readonly environments: EnvironmentsService,
    private readonly config: AppConfig,
    private readonly room: SandboxRoom,
    @Inject(SANDBOX_DRIVER) private readonly driver: SandboxDriver,
    private readonly sandboxes: SetupSandboxes,
  ) {}

  onApplicationBootstrap(): void {
    if (this.config.buildOnSave) this.loop = this.run();
  }

  async beforeApplicationShutdown(): Promise<void> {
    this.stopping.abort();
    const limit = new AbortController();
    await Promise.race([
      this.loop,
      delay(DRAIN_LIMIT_MS, undefined, { signal: limit.signal }).catch(() => undefined),
    ]);
    limit.abort();
  }

  private async run(): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      let more = false;
      try {
        more = await this.buildNext(signal);
      } catch (error) {
        if (!signal.aborted && !isDatabaseUnavailable(error)) {
          this.logger.warn(`No saved environment could be built: ${String(error)}`);
        }
      }
      if (!more) await delay(POLL_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  /** @returns whether there may be more to build at once */
  private async buildNext(signal: AbortSignal): Promise<boolean> {
    if (!(await this.driver.sharesSetups?.({ signal }))) return false;
    if ((await this.room.pressure(signal)) !== undefined) return false;
    const version = await this.saved.claimUnscoped();
    if (version === undefined) return false;
    await this.build(version, signal);
    return true;
  }

  /** Builds a version and records how that ends. A failure is not an error of this process. */
  private async build(version: BuiltVersion, signal: AbortSignal): Promise<void> {
    let redactor = Redactor.of([]);
    const work = async (begun: () => void): Promise<void> => {
      begun();
      const { environment, recipe } = await this.recipeOf(version, signal);
      redactor = await Redactor.prepare(Object.values(environment.envVars));
      await this.sandboxes.run(recipe, signal);
    };
    const describe = (error: unknown): string | undefined => {
      if (signal.aborted) return undefined;
      if (error instanceof SetupFailed) return setupFailure(error, redactor).message;
      return redactor.redact(error instanceof Error ? error.message : String(error));
    };
    try {
      await this.builds.during(version, work, describe);
    } catch (error) {
      const why = describe(error);
      if (why !== undefined) this.logger.debug(`Environment ${version.id} was not built: ${why}`);
    }
  }

  /** As for a session without repositories and tool servers. */
  private async recipeOf({ id, version }: BuiltVersion, signal: AbortSignal) {
    const environment = await this.environments.pinnedUnscoped(id, version);
    const network = await networkPolicyOf(
      { environment, repositories: [], runtimeTurn: { mcpServers: [] } },
      // Drivers that share setups know the hosts without a sandbox; this one does not exist.
      () => this.driver.packageHosts({ sandboxId: randomUUID(), signal }),
    );
    const { packages, setupScript, networking } = environment;
    const recipe: WarmRecipe = {
      key: `${id} ${version}`,
      networkMode: networking.type,
      writableRoot: needsWritableRoot({ packages, setupScript }),
      setup: { id, version, clones: false, network },
      programs: [],
    };
    return { environment, recipe };
  }
}
