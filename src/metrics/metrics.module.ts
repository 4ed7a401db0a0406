import { Global, Module } from '@nestjs/common';
import { MetricsServer } from './metrics-server.service.js';
import { Metrics } from './metrics.js';

@Global()
@Module({ providers: [Metrics, MetricsServer], exports: [Metrics] })
export class MetricsModule {}
