import { Module } from '@nestjs/common';
import { AppConfig } from '../config/app-config.js';
import { Budgets } from './budgets.js';
import { UsageCollector } from './usage-collector.service.js';
import { UsageComparison } from './usage-comparison.js';
import { Prices } from './prices.js';
import { UsageRepository } from './usage.repository.js';

/** Usage of models and its budgets, for all roles. */
@Module({
  providers: [
    Budgets,
    UsageRepository,
    {
      provide: Prices,
      inject: [AppConfig],
      useFactory: ({ pricesFile }: AppConfig) => Prices.load(pricesFile),
    },
  ],
  exports: [Budgets, Prices, UsageRepository],
})
export class UsageModule {}

/** The role `worker`: stores what the gateway counts, and compares it with what agent programs report. */
@Module({
  imports: [UsageModule],
  providers: [UsageCollector, UsageComparison],
  exports: [UsageCollector, UsageComparison],
})
export class UsageCollectionModule {}
