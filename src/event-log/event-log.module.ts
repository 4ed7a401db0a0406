import { Global, Module } from '@nestjs/common';
import { Notifier } from './log-notifications.js';
import { EventLogRepository } from './event-log.repository.js';
import { FeedHub } from './session-feed.js';
import { LogMetrics, LogPartitions } from './log-partitions.js';

@Global()
@Module({
  providers: [Notifier, EventLogRepository, FeedHub, LogMetrics, LogPartitions],
  exports: [Notifier, EventLogRepository, FeedHub, LogPartitions],
})
export class EventLogModule {}
