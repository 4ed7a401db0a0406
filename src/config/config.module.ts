import { type DynamicModule, Module } from '@nestjs/common';
import { AppConfig } from './app-config.js';

/** Makes the one {@link AppConfig} injectable everywhere. */
@Module({})
export class ConfigModule {
  static of(config: AppConfig): DynamicModule {
    return {
      module: ConfigModule,
      global: true,
      providers: [{ provide: AppConfig, useValue: config }],
      exports: [AppConfig],
    };
  }
}
