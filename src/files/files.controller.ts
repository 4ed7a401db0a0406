import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { Controller, Delete, Get, Param, Put, Query, Req, Res } from '@nestjs/common';
import { ApiBody, ApiConsumes, ApiHeader, ApiQuery, ApiResponse, ApiTags } from '@nestjs/swagger';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { badRequest, sharedFileLimitReached, tooLate, unprocessable } from '../common/errors.js';
import { AppConfig } from '../config/app-config.js';
import { DetailResponse } from '../common/openapi/error-responses.dto.js';
import { Operation } from '../common/openapi/operation.decorator.js';
import { CurrentUser, StreamsBody } from '../common/request-decorators.js';
import { SANDBOX_GONE } from '../sessions/session-transitions.js';
import { ARCHIVE_FORMATS, archiveOf, type ArchiveFormat } from './archive.js';
import { FileList, FileObject, presentFile } from './dto/file.dto.js';
import { FilesService, NO_ROOM, NO_SUCH_FILE } from './files.service.js';
import { bodyOf, contentOf, endOf, sendStream, stallOf } from './transfer.js';
import { attachment, hasTag, partOf } from './ranges.js';

const MAX_LIMIT = 1000;
const BAD_LIMIT = `limit must be a whole number from 1 to ${MAX_LIMIT}`;
const BAD_MODE = 'mode must be octal permissions, such as 0644';
const NO_PATH = 'path is required';
const STALLED = 'The upload has stalled';
const BAD_FORMAT = `format must be one of ${ARCHIVE_FORMATS.join(', ')}`;
const BAD_RANGE = 'No byte of the file is in the requested range';

const NOT_FOUND = ['Session not found', NO_SUCH_FILE];
const LIMIT = 'Concurrent file access limit reached (16 of 16 open). Let one end first.';
const BUSY = { 429: [LIMIT, sharedFileLimitReached(128, 128).message] };
const BINARY = { type: 'string', format: 'binary' } as const;

const PATH = {
  name: 'path',
  description:
    'Relative to the workspace, or absolute in the workspace or the home. Links are followed within the two.',
  schema: { type: 'string' },
} as const;

/** A parameter that is sent twice, or as an object, counts as empty. */
const text = (value: unknown): string => (typeof value === 'string' ? value : '');

function required(path: unknown): string {
  if (text(path) === '') throw unprocessable(NO_PATH);
  return text(path);
}

@ApiTags('files')
@Controller('sessions')
export class FilesController {
  constructor(
    private readonly files: FilesService,
    private readonly config: AppConfig,
  ) {}

  /**
   * Lists a folder in the sandbox of a session, in the order of its names.
   * @remarks Works while a turn runs, and until the sandbox is removed. A path that is no folder has one entry: itself.
   */
  @Operation({
    id: 'listSessionFiles',
    refusals: { 400: [BAD_LIMIT], 404: NOT_FOUND, 409: [SANDBOX_GONE], ...BUSY },
  })
  @ApiQuery({
    ...PATH,
    required: false,
    description: `${PATH.description} Default: the workspace.`,
  })
  @ApiQuery({
    name: 'limit',
    required: false,
    description: 'The maximum number of entries to return. Default: 1000.',
    schema: { type: 'integer', minimum: 1, maximum: MAX_LIMIT },
  })
  @ApiQuery({
    name: 'after',
    required: false,
    description: 'The path of the last entry that was received. The list continues after it.',
    schema: { type: 'string' },
  })
  @ApiResponse({ status: 200, type: FileList })
  @Get(':id/files')
  async list(
    @CurrentUser() userId: string,
    @Param('id') sessionId: string,
    @Query('path') path: unknown,
    @Query('limit') limit: unknown,
    @Query('after') after: unknown,
  ): Promise<FileList> {
    const page = { after: text(after), limit: limit === undefined ? MAX_LIMIT : readLimit(limit) };
    const ref = { userId, sessionId, path: text(path) };
    const { entries, hasMore } = await this.files.list(ref, page);
    return { data: entries.map(presentFile), has_more: hasMore };
  }

  /**
   * Downloads a file, or a part of it.
   * @remarks `ETag` changes with the content, so that an interrupted download can continue with `Range` and `If-Range`.
   * A file that becomes shorter while it is read ends the connection early; of one that grows, the bytes are sent that
   * it had at the beginning. What is no file answers 404.
   */
  @Operation({
    id: 'readSessionFile',
    refusals: { 404: NOT_FOUND, 409: [SANDBOX_GONE], 416: [BAD_RANGE], 422: [NO_PATH], ...BUSY },
  })
  @ApiQuery({ ...PATH, required: true })
  @ApiHeader({ name: 'Range', required: false, description: 'One range of bytes.' })
  @ApiHeader({ name: 'If-Range', required: false, description: 'Sends all of a changed file.' })
  @ApiHeader({ name: 'If-None-Match', required: false, description: '304 for an unchanged file.' })
  @ApiResponse({
    status: 200,
    description: 'The content.',
    content: { 'application/octet-stream': { schema: BINARY } },
  })
  @ApiResponse({
    status: 206,
    description: 'The requested part.',
    content: { 'application/octet-stream': { schema: BINARY } },
  })
  @ApiResponse({ status: 304, description: 'The file has not changed.' })
  @Get(':id/files/content')
  async read(
    @CurrentUser() userId: string,
    @Param('id') sessionId: string,
    @Query('path') path: unknown,
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const ref = { userId, sessionId, path: required(path) };
    const signal = endOf(reply);
    const file = await this.files.open(ref, signal);
    const { entry } = file;
    const { headers, method } = request;
    const tag = `"${createHash('sha256').update(entry.version).digest('base64url').slice(0, 27)}"`;
    const name = ref.path.split('/').findLast((part) => part !== '') ?? 'file';
    void reply.headers({
      etag: tag,
      'last-modified': entry.modifiedAt.toUTCString(),
      'accept-ranges': 'bytes',
      'cache-control': 'private, no-cache',
    });
    const ifRange = headers['if-range'];
    const range = ifRange === undefined || ifRange === tag ? headers.range : undefined;
    const part = partOf(entry.size, range);
    const isUnchanged = hasTag(headers['if-none-match'], tag);
    if (isUnchanged || part === null || method === 'HEAD') await file.close();
    if (isUnchanged) return void reply.code(304).send();
    if (part === null) {
      const all = `bytes */${entry.size}`;
      return void reply.code(416).header('content-range', all).send({ detail: BAD_RANGE });
    }
    const { offset, length } = part;
    const isPart = range !== undefined && length < entry.size;
    if (isPart) {
      const last = offset + length - 1;
      void reply.code(206).header('content-range', `bytes ${offset}-${last}/${entry.size}`);
    }
    void reply.headers({
      'content-type': 'application/octet-stream',
      'content-length': length,
      'content-disposition': attachment(name),
      'x-content-type-options': 'nosniff',
    });
    const content = method === 'HEAD' ? [] : contentOf(file, part);
    sendStream(reply, Readable.from(content), this.config.fileIdleSeconds);
  }

  /**
   * Uploads a file, and replaces the one that is there.
   * @remarks Missing folders are made. The file appears as a whole, or not at all if the request ends early. A link is
   * replaced itself. Without `mode`, the file that is replaced keeps its permissions, and a new one gets 0644.
   */
  @Operation({
    id: 'writeSessionFile',
    refusals: {
      404: NOT_FOUND,
      409: [SANDBOX_GONE, 'This is not possible: the path is a directory'],
      408: [STALLED],
      413: [NO_ROOM],
      422: [NO_PATH, BAD_MODE],
      ...BUSY,
    },
  })
  @ApiQuery({ ...PATH, required: true })
  @ApiQuery({
    name: 'mode',
    required: false,
    description: 'The permissions of the file in octal notation, such as 0755.',
    schema: { type: 'string' },
  })
  @ApiConsumes('application/octet-stream')
  @ApiBody({ schema: BINARY, required: true })
  @ApiResponse({ status: 200, type: FileObject })
  @StreamsBody()
  @Put(':id/files/content')
  async write(
    @CurrentUser() userId: string,
    @Param('id') sessionId: string,
    @Query('path') path: unknown,
    @Query('mode') mode: unknown,
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<FileObject> {
    const ref = { userId, sessionId, path: required(path) };
    const permissions = mode === undefined ? null : readMode(mode);
    const content = bodyOf(request);
    const stall = stallOf(request, this.config.fileIdleSeconds);
    const signal = AbortSignal.any([endOf(reply), stall]);
    try {
      return presentFile(await this.files.write(ref, { mode: permissions, content, signal }));
    } catch (error) {
      throw stall.aborted ? tooLate(STALLED) : error;
    }
  }

  /**
   * Deletes a file, a link, or a folder with everything in it.
   * @remarks The home and the workspace themselves cannot be deleted.
   */
  @Operation({
    id: 'deleteSessionFile',
    refusals: { 404: NOT_FOUND, 409: [SANDBOX_GONE], 422: [NO_PATH], ...BUSY },
  })
  @ApiQuery({ ...PATH, required: true })
  @Delete(':id/files')
  async remove(
    @CurrentUser() userId: string,
    @Param('id') sessionId: string,
    @Query('path') path: unknown,
  ): Promise<DetailResponse> {
    await this.files.remove({ userId, sessionId, path: required(path) });
    return { detail: 'File deleted' };
  }

  /**
   * Downloads a folder as an archive, which is made while it is sent.
   * @remarks Its names are relative to the folder. Links are kept as links. Pipes, sockets, devices, and what the agent
   * cannot read are left out. An error in the middle ends the connection early.
   */
  @Operation({
    id: 'archiveSessionFiles',
    refusals: { 404: NOT_FOUND, 409: [SANDBOX_GONE], 422: [BAD_FORMAT], ...BUSY },
  })
  @ApiQuery({
    ...PATH,
    required: false,
    description: `${PATH.description} Default: the workspace.`,
  })
  @ApiQuery({
    name: 'format',
    required: false,
    description: 'Default: tar.gz.',
    schema: { type: 'string', enum: [...ARCHIVE_FORMATS] },
  })
  @ApiResponse({
    status: 200,
    description: 'The archive.',
    content: { 'application/gzip': { schema: BINARY }, 'application/zip': { schema: BINARY } },
  })
  @Get(':id/files/archive')
  async archive(
    @CurrentUser() userId: string,
    @Param('id') sessionId: string,
    @Query('path') path: unknown,
    @Query('format') format: unknown,
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const kind = readFormat(format);
    const ref = { userId, sessionId, path: text(path) };
    const tree = this.files.tree(ref, endOf(reply));
    // Errors before the first entry still have a status.
    const first = await tree.next();
    const name = ref.path.split('/').findLast((part) => part !== '') ?? 'workspace';
    void reply.headers({
      'content-type': kind === 'zip' ? 'application/zip' : 'application/gzip',
      'content-disposition': attachment(`${name}.${kind}`),
      'cache-control': 'private, no-cache',
      'x-content-type-options': 'nosniff',
    });
    if (request.method === 'HEAD') {
      await tree.return();
      sendStream(reply, Readable.from([]), this.config.fileIdleSeconds);
      return;
    }
    const all = async function* () {
      if (first.done !== true) yield first.value;
      yield* tree;
    };
    sendStream(reply, archiveOf(all(), kind), this.config.fileIdleSeconds);
  }
}

function readLimit(value: unknown): number {
  const limit = /^\d{1,4}$/.test(text(value)) ? Number(value) : 0;
  if (limit < 1 || limit > MAX_LIMIT) throw badRequest(BAD_LIMIT);
  return limit;
}

function readMode(value: unknown): number {
  if (!/^0?[0-7]{3}$/.test(text(value))) throw unprocessable(BAD_MODE);
  return Number.parseInt(text(value), 8);
}

function readFormat(value: unknown): ArchiveFormat {
  const format = ARCHIVE_FORMATS.find((one) => one === (value ?? 'tar.gz'));
  if (format === undefined) throw unprocessable(BAD_FORMAT);
  return format;
}
