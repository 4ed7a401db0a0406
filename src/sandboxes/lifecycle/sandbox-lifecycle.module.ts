import { type DynamicModule, Module, type ModuleMetadata, type Type } from '@nestjs/common';
import { SandboxReaper } from './sandbox-reaper.service.js';
import { SandboxesInUse } from './sandboxes-in-use.js';
import { SandboxesRepository } from './sandboxes.repository.js';
import { SetupSandboxes } from './setup-sandboxes.service.js';
import { WarmPool } from './warm-pool.service.js';
import { WarmSetups } from './warm-recipe.js';

/** The background work of a worker on sandboxes: it destroys those that no session needs, and keeps some ready. */
@Module({})
export class SandboxLifecycleModule {
  /** @param setups the provider of what environments install, with the modules that it needs. */
  static with(
    setups: Type<WarmSetups>,
    imports: NonNullable<ModuleMetadata['imports']>,
  ): DynamicModule {
    return {
      module: SandboxLifecycleModule,
      imports,
      providers: [
        SandboxesInUse,
        SandboxesRepository,
        SandboxReaper,
        SetupSandboxes,
        WarmPool,
        { provide: WarmSetups, useClass: setups },
      ],
      exports: [SandboxesInUse, SetupSandboxes, WarmPool],
    };
  }
}
