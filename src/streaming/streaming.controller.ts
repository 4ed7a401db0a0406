import { Controller, Get, Param, Query, Req, Res } from '@nestjs/common';
import { ApiBearerAuth, ApiTags } from '@nestjs/swagger';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { OwnerId } from '../common/owner.decorator.js';
import { readCursor } from './cursor.js';
import { StreamingService } from './streaming.service.js';

@ApiTags('sessions')
@ApiBearerAuth()
@Controller('sessions')
export class StreamingController {
  constructor(private readonly streaming: StreamingService) {}

  /** Streams a session's events: everything after the cursor, then live, until the current turn has ended. */
  @Get(':id/stream')
  async stream(
    @OwnerId() userId: string,
    @Param('id') id: string,
    @Query('since') since: unknown,
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const cursor = readCursor(request.headers['last-event-id'], since);
    const stream = await this.streaming.open(userId, id, cursor);
    await reply
      .headers({
        'content-type': 'text/event-stream',
        'cache-control': 'no-cache',
        'x-accel-buffering': 'no',
      })
      .send(stream);
  }
}
