import { Module } from '@nestjs/common';
import { IdempotencyRepository, RepeatableRequests } from './repeatable-requests.js';

@Module({
  providers: [IdempotencyRepository, RepeatableRequests],
  exports: [IdempotencyRepository, RepeatableRequests],
})
export class IdempotencyModule {}
