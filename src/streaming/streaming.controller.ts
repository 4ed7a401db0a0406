import { badRequest } from '../common/errors.js';
import type { OutgoingHttpHeaders } from 'node:http';
import { Controller, Get, Param, Query, Req, Res } from '@nestjs/common';
import { ApiHeader, ApiQuery, ApiResponse, ApiTags, getSchemaPath } from '@nestjs/swagger';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Operation } from '../common/openapi/operation.decorator.js';
import { CurrentOwner, type Owner } from '../common/request-decorators.js';
import { SessionEvent } from './dto/session-event.dto.js';
import { StreamingService } from './streaming.service.js';

/**
 * Reads the cursor from the header `Last-Event-ID`, or else from the query parameter `since`. The default is the
 * beginning.
 * @returns the id of the last event that the client has received; 0 for none.
 * @throws DomainError 400.
 */
export function readCursor(header: unknown, since: unknown): number {
  if (header !== undefined && header !== '') return parse(header, 'Last-Event-ID');
  if (since !== undefined) return parse(since, 'since');
  return 0;
}

function parse(value: unknown, name: string): number {
  if (typeof value !== 'string' || !/^\d+$/.test(value)) {
    throw badRequest(`${name} must be a non-negative integer`);
  }
  // All cursors above the largest possible id are equivalent.
  return Math.min(Number(value), Number.MAX_SAFE_INTEGER);
}

const CURSOR = { type: 'integer', format: 'int64', minimum: 0 } as const;
const EXAMPLE = [
  'data: {"type":"start","provider":"shell","session_id":"0d2f6c1e-6a3b-4f0e-9c55-2f1f7c1b7a10"}',
  'id: 1\ndata: {"type":"stage","id":1,"stage":"create_sprite","state":"started"}',
  'id: 2\ndata: {"type":"stage","id":2,"stage":"create_sprite","state":"done","duration_ms":42}',
  ': heartbeat',
  'data: {"type":"turn_start","id":8,"turn":1}',
  'id: 8\ndata: {"type":"output","id":8,"stream":"stdout","data":"hello\\n","turn":1}',
  'id: 8\ndata: {"type":"exit","id":8,"code":0}',
];

@ApiTags('sessions')
@Controller('sessions')
export class StreamingController {
  constructor(private readonly streaming: StreamingService) {}

  /**
   * Streams a session's events: everything after the cursor, then live.
   * @remarks Server-Sent Events: each is `data:` with one `SessionEvent` as JSON and a blank line; all but `start` and
   * `turn_start` have an `id:` line before it. Lines that begin with `:` are comments; `: heartbeat` is sent after
   * every 15 seconds without output.
   *
   * A stream follows up to the turn that was the latest when it connected, and ends with a terminal event: `exit`,
   * `error`, `terminated` or `stale`. To watch a further turn, connect again with the last id to get only new events.
   *
   * To resume, send the last id as `Last-Event-ID`, which SSE libraries do by themselves, or as `since`; the header
   * takes precedence. Each stream begins with `start`. If the event of the id has been purged, the stream resumes at
   * the next event that still exists; an id beyond the end counts as the end. A stream that ends without a terminal
   * event was cut off (the service restarts, or the session was deleted, or the access token is no longer valid):
   * connect again. While the turn waits for a worker or its sandbox is being provisioned, comments say what is going on, in
   * the words of the session's `progress`.
   */
  @Operation({
    id: 'streamSession',
    refusals: {
      400: ['since must be a non-negative integer', 'Last-Event-ID must be a non-negative integer'],
      404: ['Session not found'],
      429: ['Concurrent stream limit reached (10 of 10 open). Close a stream first.'],
    },
  })
  @ApiQuery({
    name: 'since',
    required: false,
    description:
      'The id of the last event that was received. Default: 0, which returns all events.',
    schema: CURSOR,
  })
  @ApiHeader({
    name: 'Last-Event-ID',
    required: false,
    description: 'The same as `since`, and takes precedence over it. An empty one is ignored.',
    schema: CURSOR,
  })
  @ApiResponse({
    status: 200,
    description: 'Events, as they occur.',
    headers: {
      'Cache-Control': { description: 'Always `no-cache`.', schema: { type: 'string' } },
      'X-Accel-Buffering': {
        description: 'Always `no`: proxies must not gather events.',
        schema: { type: 'string' },
      },
    },
    content: {
      'text/event-stream': {
        schema: { $ref: getSchemaPath(SessionEvent) },
        examples: {
          stream: {
            summary: 'A short turn, as it is sent',
            value: `${EXAMPLE.join('\n\n')}\n\n`,
          },
        },
      },
    },
  })
  @Get(':id/stream')
  async stream(
    @CurrentOwner() owner: Owner,
    @Param('id') id: string,
    @Query('since') since: unknown,
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const cursor = readCursor(request.headers['last-event-id'], since);
    const stream = await this.streaming.open(owner, id, cursor);
    reply.headers({
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache',
      'x-accel-buffering': 'no',
    });
    // The stream writes directly to the connection, so that no layer in between needs memory for each stream.
    reply.hijack();
    reply.raw.writeHead(200, reply.getHeaders() as OutgoingHttpHeaders);
    if (request.method === 'HEAD') this.streaming.close(stream, reply.raw);
    else this.streaming.begin(stream, reply.raw);
  }
}
