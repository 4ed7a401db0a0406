import { Readable } from 'node:stream';
import { Controller, Get, Param, Query, Req, Res } from '@nestjs/common';
import { ApiQuery, ApiResponse, ApiTags } from '@nestjs/swagger';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { badRequest } from '../../common/errors.js';
import { AppConfig } from '../../config/app-config.js';
import { Operation } from '../../common/openapi/operation.decorator.js';
import { CurrentUser } from '../../common/request-decorators.js';
import { SANDBOX_GONE } from '../../sessions/session-transitions.js';
import { ChangeList, presentChanges } from '../dto/change.dto.js';
import { endOf, sendStream } from '../transfer.js';
import {
  ChangesService,
  NO_SUCH_REPOSITORY,
  NOT_COMPARABLE,
  NOT_KEPT,
  WHICH_REPOSITORY,
} from './changes.service.js';

const BAD_TURN = 'turn must be a whole number from 1';
const TURN = {
  name: 'turn',
  required: false,
  description:
    'The number of a turn: how it was at its end. Kept as long as the log, also without the sandbox. Default: now.',
  schema: { type: 'integer', minimum: 1 },
} as const;

function readTurn(value: unknown): number | undefined {
  if (value === undefined) return undefined;
  const turn = typeof value === 'string' && /^\d{1,9}$/.test(value) ? Number(value) : 0;
  if (turn < 1) throw badRequest(BAD_TURN);
  return turn;
}

@ApiTags('files')
@Controller('sessions')
export class ChangesController {
  constructor(
    private readonly changes: ChangesService,
    private readonly config: AppConfig,
  ) {}

  /**
   * Lists how the repositories of a session differ from the commits that they began with.
   * @remarks Compares the files of the working tree, so it does not matter what was committed, amended, staged or
   * switched. Files that git ignores are left out unless they were added. Settings and hooks of the repository have no
   * effect, and its attributes neither: files are compared byte for byte.
   */
  @Operation({
    id: 'listSessionChanges',
    refusals: {
      400: [BAD_TURN],
      404: ['Session not found', NOT_KEPT],
      409: [SANDBOX_GONE, NOT_COMPARABLE],
    },
  })
  @ApiQuery(TURN)
  @ApiResponse({ status: 200, type: ChangeList })
  @Get(':id/changes')
  async list(
    @CurrentUser() userId: string,
    @Param('id') sessionId: string,
    @Query('turn') turn: unknown,
  ): Promise<ChangeList> {
    const changes = await this.changes.list({ userId, sessionId, turn: readTurn(turn) });
    return { data: changes.map(presentChanges) };
  }

  /**
   * Downloads the changes of a repository as a patch that `git apply` takes on the base, with binary files.
   * @remarks A patch of more than 64 MiB is cut there; of a turn that has ended, 16 MiB are kept for all repositories
   * together. `X-Patch-Truncated: true` says that a patch was cut.
   */
  @Operation({
    id: 'readSessionPatch',
    refusals: {
      400: [BAD_TURN],
      404: ['Session not found', NO_SUCH_REPOSITORY, NOT_KEPT],
      409: [SANDBOX_GONE, NOT_COMPARABLE],
      422: [WHICH_REPOSITORY],
    },
  })
  @ApiQuery({
    name: 'mount_path',
    required: false,
    description: 'Which repository. Default: the only one.',
    schema: { type: 'string' },
  })
  @ApiQuery(TURN)
  @ApiResponse({
    status: 200,
    description: 'The patch.',
    content: { 'text/x-diff': { schema: { type: 'string', format: 'binary' } } },
    headers: {
      'X-Patch-Truncated': {
        description: '`true` if the patch was cut because it is too long, else absent.',
        schema: { type: 'string' },
      },
    },
  })
  @Get(':id/changes/patch')
  async patch(
    @CurrentUser() userId: string,
    @Param('id') sessionId: string,
    @Query('mount_path') mountPath: unknown,
    @Query('turn') turn: unknown,
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const ref = { userId, sessionId, turn: readTurn(turn) };
    const mounted = typeof mountPath === 'string' ? mountPath : '';
    const { bytes, isCut, content, close } = await this.changes.patch(ref, mounted, endOf(reply));
    void reply.headers({
      'content-type': 'text/x-diff',
      'content-length': bytes,
      'cache-control': 'private, no-cache',
      'x-content-type-options': 'nosniff',
      ...(isCut && { 'x-patch-truncated': 'true' }),
    });
    if (request.method !== 'HEAD')
      return sendStream(reply, Readable.from(content), this.config.fileIdleSeconds);
    await close();
    sendStream(reply, Readable.from([]), this.config.fileIdleSeconds);
  }
}
