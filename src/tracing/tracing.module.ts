import { type DynamicModule, Global, Module } from '@nestjs/common';
import { Tracing } from './tracing.js';

/** Provides the tracing that was configured when the process started. */
@Global()
@Module({})
export class TracingModule {
  static with(tracing: Tracing): DynamicModule {
    return {
      module: TracingModule,
      providers: [{ provide: Tracing, useValue: tracing }],
      exports: [Tracing],
    };
  }
}
