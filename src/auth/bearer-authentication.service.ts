import { Injectable, NotFoundException, type OnModuleInit } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { unauthorized } from '../common/errors.js';
import type { Owner, OwnedRequest } from '../common/request-decorators.js';
import { inWorkContext } from '../common/work-context.js';
import { ConsoleCookie } from './console-cookie.js';
import { LastUse, TokenVerifier } from './token-verifier.js';
import { RequestRate } from './request-rate.js';

/** The scheme's name is case-insensitive (RFC 9110). */
const BEARER = /^bearer +([^\s]+) *$/i;

/**
 * For answers that a browser with the cookie gets: should one be opened as a page, such as a file that an agent wrote,
 * nothing in it runs and it has no access to the console. Routes may replace `cache-control`.
 */
const INERT = {
  'content-security-policy': "default-src 'none'; sandbox; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
};

/**
 * Authenticates requests by their access token, or by the cookie of the web console, and stores the user on the request.
 * Covers every route that is not marked public. It is a hook of the server instead of a Nest guard because guards run
 * after the body was read and parsed, which an unauthenticated client must not be able to cause.
 */
@Injectable()
export class BearerAuthentication implements OnModuleInit {
  constructor(
    private readonly adapterHost: HttpAdapterHost,
    private readonly verifier: TokenVerifier,
    private readonly lastUse: LastUse,
    private readonly rate: RequestRate,
    private readonly cookie: ConsoleCookie,
  ) {}

  onModuleInit(): void {
    const fastify = this.adapterHost.httpAdapter.getInstance<FastifyInstance>();
    fastify.addHook('onRequest', async (request: FastifyRequest & OwnedRequest, reply) => {
      // Without a route there is nothing to protect, and no reason to read the body.
      if (request.is404) throw new NotFoundException();
      if (request.routeOptions.config.public) return;
      await inWorkContext(request.work, async () => {
        const owner = await this.ownerOf(this.tokenOf(request, reply));
        request.owner = owner;
        await this.rate.count(owner);
        // As if the path did not exist, before the body is read.
        if (request.routeOptions.config.operator && !owner.operator) throw new NotFoundException();
      });
    });
  }

  /** The header's token; without the header, that of the console's cookie. */
  private tokenOf({ method, headers }: FastifyRequest, reply: FastifyReply): string | undefined {
    if (headers.authorization !== undefined) return BEARER.exec(headers.authorization)?.[1];
    const token = this.cookie.tokenOf(method, headers);
    if (token !== undefined) void reply.headers(INERT);
    return token;
  }

  /** @throws DomainError 401, with the same sentence for every reason: the reason would only help an attacker. */
  private async ownerOf(token: string | undefined): Promise<Owner> {
    const owner = token === undefined ? undefined : await this.verifier.verify(token);
    if (!owner) throw unauthorized('Missing or invalid access token');
    this.lastUse.note(owner.tokenId);
    return owner;
  }
}
