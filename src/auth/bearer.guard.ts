import { type CanActivate, type ExecutionContext, Injectable } from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import type { FastifyRequest } from 'fastify';
import { unauthorized } from '../common/errors.js';
import { OPEN } from '../common/open.decorator.js';
import type { OwnedRequest } from '../common/owner.decorator.js';
import { LastUse } from './last-use.js';
import { TokenVerifier } from './token-verifier.js';

/** The scheme's name has no case (RFC 9110). */
const BEARER = /^bearer +([^\s]+) *$/i;

/** Lets a request pass that carries a valid access token, and notes its owner. Guards every route not marked open. */
@Injectable()
export class BearerGuard implements CanActivate {
  constructor(
    private readonly reflector: Reflector,
    private readonly verifier: TokenVerifier,
    private readonly lastUse: LastUse,
  ) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const targets = [context.getHandler(), context.getClass()];
    if (this.reflector.getAllAndOverride<boolean | undefined>(OPEN, targets)) return true;

    const request = context.switchToHttp().getRequest<FastifyRequest & OwnedRequest>();
    const token = BEARER.exec(request.headers.authorization ?? '')?.[1];
    const owner = token === undefined ? undefined : await this.verifier.verify(token);
    // One sentence for every reason: which of them it was helps only whoever is guessing.
    if (!owner) throw unauthorized('Missing or invalid access token');
    request.owner = owner;
    this.lastUse.note(owner.tokenId);
    return true;
  }
}
