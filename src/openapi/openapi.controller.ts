import { Controller, Get, Header, Param, Res } from '@nestjs/common';
import { ApiExcludeEndpoint, ApiResponse, ApiTags } from '@nestjs/swagger';
import type { FastifyReply } from 'fastify';
import { notFound } from '../common/errors.js';
import { Open } from '../common/open.decorator.js';
import { Operation } from '../common/openapi/operation.decorator.js';
import { ApiDocument } from './api-document.js';
import { DOCS_PAGE, DOCS_POLICY, docsAsset } from './docs-assets.js';

const JSON_TYPE = 'application/json; charset=utf-8';

/** The interface's description, for programs and for people. */
@ApiTags('operations')
@Controller()
export class OpenApiController {
  constructor(private readonly document: ApiDocument) {}

  /** This document. */
  @Operation({ id: 'getOpenApi' })
  @ApiResponse({
    status: 200,
    description: 'An OpenAPI document.',
    content: { 'application/json': { schema: { type: 'object', additionalProperties: true } } },
  })
  @Open()
  @Get('openapi.json')
  @Header('content-type', JSON_TYPE)
  openApi(): Buffer {
    return this.document.bytes();
  }

  @ApiExcludeEndpoint()
  @Open()
  @Get('docs')
  @Header('content-type', 'text/html; charset=utf-8')
  @Header('content-security-policy', DOCS_POLICY)
  docs(): string {
    return DOCS_PAGE;
  }

  @ApiExcludeEndpoint()
  @Open()
  @Get('docs/:file')
  async docsFile(@Param('file') file: string, @Res() reply: FastifyReply): Promise<void> {
    const asset = await docsAsset(file);
    if (!asset) throw notFound('Not found');
    await reply
      .headers({ 'content-type': asset.type, 'cache-control': 'public, max-age=3600' })
      .send(asset.bytes);
  }
}
