import { Controller, Get, Header, Param, Res } from '@nestjs/common';
import { ApiExcludeEndpoint, ApiResponse, ApiTags } from '@nestjs/swagger';
import type { FastifyReply } from 'fastify';
import { notFound } from '../common/errors.js';
import { Open } from '../common/open.decorator.js';
import { Operation } from '../common/openapi/operation.decorator.js';
import { ApiDocument } from './api-document.js';
import { DOCS_PAGE, DOCS_POLICY, docsAsset } from './docs-assets.js';

const JSON_TYPE = 'application/json; charset=utf-8';
const DOCUMENT = {
  status: 200,
  description: 'An OpenAPI document.',
  content: { 'application/json': { schema: { type: 'object', additionalProperties: true } } },
} as const;

/** The interface's description, for programs and for people. */
@ApiTags('operations')
@Controller()
export class OpenApiController {
  constructor(private readonly document: ApiDocument) {}

  /** The interface as OpenAPI 3.1. */
  @Operation({ id: 'getOpenApi' })
  @ApiResponse(DOCUMENT)
  @Open()
  @Get('openapi.json')
  @Header('content-type', JSON_TYPE)
  openApi(): Buffer {
    return this.document.bytes('3.1.0');
  }

  /**
   * The interface as OpenAPI 3.0.3.
   * @remarks For generators that do not know 3.1, or no unions: subtypes stand in place of those.
   */
  @Operation({ id: 'getOpenApi30' })
  @ApiResponse(DOCUMENT)
  @Open()
  @Get('openapi-3.0.json')
  @Header('content-type', JSON_TYPE)
  openApi30(): Buffer {
    return this.document.bytes('3.0.3');
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
