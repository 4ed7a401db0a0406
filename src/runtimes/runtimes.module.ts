import { Global, Module } from '@nestjs/common';
import { AGENT_RUNTIMES, ProviderCatalogue } from './provider-catalogue.js';
import { RUNTIMES } from './registry.js';

@Global()
@Module({
  providers: [{ provide: AGENT_RUNTIMES, useValue: RUNTIMES }, ProviderCatalogue],
  exports: [ProviderCatalogue],
})
export class RuntimesModule {}
