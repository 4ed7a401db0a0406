import { Module } from '@nestjs/common';
import { SessionsModule } from '../sessions/sessions.module.js';
import { QueueNotices } from './queue-notices.service.js';
import { StreamRegistry } from './stream-registry.service.js';
import { StreamTokens } from './stream-tokens.service.js';
import { StreamingController } from './streaming.controller.js';
import { StreamingService } from './streaming.service.js';

@Module({
  imports: [SessionsModule],
  controllers: [StreamingController],
  providers: [QueueNotices, StreamRegistry, StreamingService, StreamTokens],
})
export class StreamingModule {}
