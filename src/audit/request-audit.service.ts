import { Injectable, type OnModuleInit } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { OwnedRequest } from '../common/owner.decorator.js';
import { isUuid } from '../common/uuid.js';
import { AuditLog } from './audit-log.js';

/** What asks for nothing but an answer (RFC 9110, section 9.2.1). */
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE']);

/**
 * Writes the audit line of every request whose method may change something, refused ones too. A hook of the server and
 * not a part of any route: a route that is added later is audited without a word about it.
 */
@Injectable()
export class RequestAudit implements OnModuleInit {
  private readonly created = new WeakMap<FastifyRequest, string>();

  constructor(
    private readonly adapterHost: HttpAdapterHost,
    private readonly log: AuditLog,
  ) {}

  onModuleInit(): void {
    const fastify = this.adapterHost.httpAdapter.getInstance<FastifyInstance>();
    fastify.addHook('preSerialization', (request, _reply, payload, done) => {
      this.noteCreated(request, payload);
      done(null, payload);
    });
    fastify.addHook('onResponse', (request, reply, done) => {
      if (isAudited(request)) this.write(request, reply);
      done();
    });
  }

  /** What a request has created has no id before the answer. */
  private noteCreated(request: FastifyRequest, payload: unknown): void {
    if (!isAudited(request) || typeof payload !== 'object' || payload === null) return;
    const { id } = payload as { id?: unknown };
    if (typeof id === 'string' && isUuid(id)) this.created.set(request, id);
  }

  private write(request: FastifyRequest & OwnedRequest, reply: FastifyReply): void {
    const { id: named } = request.params as { id?: string };
    this.log.write({
      user_id: request.owner?.userId ?? null,
      token_id: request.owner?.tokenId ?? null,
      action: `${request.method} ${request.routeOptions.url}`,
      // Whatever else stands in a path may be anything that a client has mistaken for an id.
      object_id: named !== undefined && isUuid(named) ? named : (this.created.get(request) ?? null),
      status: reply.raw.headersSent ? reply.statusCode : null,
      request_id: request.id,
    });
  }
}

function isAudited(request: FastifyRequest): boolean {
  return !SAFE_METHODS.has(request.method) && !request.is404;
}
