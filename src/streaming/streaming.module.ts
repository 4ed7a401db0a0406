import { Module } from '@nestjs/common';
import { SessionsModule } from '../sessions/sessions.module.js';
import { StreamRegistry } from './stream-registry.service.js';
import { StreamingController } from './streaming.controller.js';
import { StreamingService } from './streaming.service.js';

@Module({
  imports: [SessionsModule],
  controllers: [StreamingController],
  providers: [StreamRegistry, StreamingService],
})
export class StreamingModule {}
