import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { Controller, Get, Header, Param, Res } from '@nestjs/common';
import { ApiExcludeEndpoint, ApiResponse, ApiTags } from '@nestjs/swagger';
import type { FastifyReply } from 'fastify';
import { notFound } from '../common/errors.js';
import { Public } from '../common/request-decorators.js';
import { Operation } from '../common/openapi/operation.decorator.js';
import { ApiDocument } from './build-document.js';

/** Loads nothing from other hosts, so the page works offline. Addresses are relative, for proxies that add a prefix. */
export const DOCS_PAGE = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>Agent Session Service</title>
    <link rel="stylesheet" href="docs/swagger-ui.css" />
    <link rel="icon" href="docs/favicon-32x32.png" />
  </head>
  <body>
    <div id="docs"></div>
    <script src="docs/swagger-ui-bundle.js"></script>
    <script src="docs/page.js"></script>
  </body>
</html>
`;

/**
 * A file of its own, because the page's policy forbids inline scripts. `validatorUrl` would send the document to a
 * public site.
 */
const PAGE_SCRIPT = `SwaggerUIBundle({
  url: 'openapi.json',
  dom_id: '#docs',
  deepLinking: true,
  validatorUrl: null,
});
`;

export const DOCS_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'";

export interface Asset {
  type: string;
  bytes: Buffer;
}

const loadPackaged = async (specifier: string): Promise<Buffer> =>
  readFile(fileURLToPath(import.meta.resolve(specifier)));

/** The files of the page by name. A fixed list, so that no other file can be requested. */
const ASSETS = new Map<string, { type: string; load: () => Promise<Buffer> }>([
  [
    'swagger-ui.css',
    { type: 'text/css; charset=utf-8', load: () => loadPackaged('swagger-ui-dist/swagger-ui.css') },
  ],
  [
    'swagger-ui-bundle.js',
    {
      type: 'text/javascript; charset=utf-8',
      load: () => loadPackaged('swagger-ui-dist/swagger-ui-bundle.js'),
    },
  ],
  [
    'favicon-32x32.png',
    { type: 'image/png', load: () => loadPackaged('swagger-ui-dist/favicon-32x32.png') },
  ],
  [
    'page.js',
    { type: 'text/javascript; charset=utf-8', load: async () => Buffer.from(PAGE_SCRIPT) },
  ],
]);

/** @returns a file of the page, `undefined` if there is none of that name. */
export async function docsAsset(name: string): Promise<Asset | undefined> {
  const asset = ASSETS.get(name);
  return asset && { type: asset.type, bytes: await asset.load() };
}

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
  @Public()
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
  @Public()
  @Get('openapi-3.0.json')
  @Header('content-type', JSON_TYPE)
  openApi30(): Buffer {
    return this.document.bytes('3.0.3');
  }

  @ApiExcludeEndpoint()
  @Public()
  @Get('docs')
  @Header('content-type', 'text/html; charset=utf-8')
  @Header('content-security-policy', DOCS_POLICY)
  docs(): string {
    return DOCS_PAGE;
  }

  @ApiExcludeEndpoint()
  @Public()
  @Get('docs/:file')
  async docsFile(@Param('file') file: string, @Res() reply: FastifyReply): Promise<void> {
    const asset = await docsAsset(file);
    if (!asset) throw notFound('Not found');
    await reply
      .headers({ 'content-type': asset.type, 'cache-control': 'public, max-age=3600' })
      .send(asset.bytes);
  }
}
