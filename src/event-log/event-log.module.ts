import { Global, Module } from '@nestjs/common';
import { Doorbell } from './doorbell.js';
import { EventLogRepository } from './event-log.repository.js';
import { FeedHub } from './feed-hub.js';
import { LogMetrics } from './log-metrics.service.js';
import { LogPartitions } from './log-partitions.js';

@Global()
@Module({
  providers: [Doorbell, EventLogRepository, FeedHub, LogMetrics, LogPartitions],
  exports: [Doorbell, EventLogRepository, FeedHub, LogPartitions],
})
export class EventLogModule {}
