import { randomBytes } from 'node:crypto';
import { Controller, Get, Param, Req, Res } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { notFound } from '../common/errors.js';
import { PublicRoute } from '../common/request-decorators.js';
import { AppConfig } from '../config/app-config.js';
import { ConsoleFiles } from './console-files.js';

const NONCE_BYTES = 16;
/** The names of the build's files change with their contents. */
const IMMUTABLE = 'public, max-age=31536000, immutable';

/**
 * Scripts only from our own files, and none that are made of text. The nonce is for styles alone: the terminal creates
 * its style sheets at run time.
 */
const policy = (nonce: string): string =>
  [
    "default-src 'none'",
    "script-src 'self'",
    `style-src 'self' 'nonce-${nonce}'`,
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'self'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; ');

/** Serves the console's page and its files. Neither contains anything of a user. */
@ApiExcludeController()
@Controller('console')
export class ConsolePageController {
  private readonly base: string;

  constructor(
    private readonly files: ConsoleFiles,
    private readonly config: AppConfig,
  ) {
    const { publicUrl } = config;
    this.base = `${publicUrl === '' ? '' : new URL(publicUrl).pathname.replace(/\/+$/, '')}/console/`;
  }

  @PublicRoute()
  @Get('assets/:file')
  async asset(
    @Param('file') file: string,
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const accepted = request.headers['accept-encoding'];
    const asset = await this.files.asset(file, [accepted].flat().join());
    if (!asset) throw notFound('Not found');
    await reply
      .headers({
        'content-type': asset.type,
        'cache-control': IMMUTABLE,
        'x-content-type-options': 'nosniff',
        vary: 'accept-encoding',
        ...(asset.encoding && { 'content-encoding': asset.encoding }),
      })
      .send(asset.bytes);
  }

  /** Every address of the console is the same page, which shows what the address says. */
  @PublicRoute()
  @Get(['/', '*'])
  async page(@Res() reply: FastifyReply): Promise<void> {
    const { template } = this.files;
    if (template === undefined) throw notFound('The console is not built: npm run build');
    const nonce = randomBytes(NONCE_BYTES).toString('base64');
    await reply
      .headers({
        'content-type': 'text/html; charset=utf-8',
        'cache-control': 'no-store',
        'content-security-policy': policy(nonce),
        'x-content-type-options': 'nosniff',
        'referrer-policy': 'no-referrer',
        'cross-origin-opener-policy': 'same-origin',
      })
      .send(
        template
          .replaceAll('%NONCE%', nonce)
          .replaceAll('%BASE%', this.base)
          .replaceAll('%API_PREFIX%', this.config.apiPrefix),
      );
  }
}
