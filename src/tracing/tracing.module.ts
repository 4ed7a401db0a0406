import { type DynamicModule, Global, Module } from '@nestjs/common';
import { Tracing } from './tracing.js';

/** Hands out the tracing that the process was started with. */
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
