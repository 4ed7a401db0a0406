import { type BeforeApplicationShutdown, Injectable, type OnModuleInit } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { onRequestOver } from '../common/http/request-context.js';
import type { OwnedRequest } from '../common/request-decorators.js';
import { isUuid } from '../common/storable.js';
import { AuditLog } from './audit-log.js';

/** Methods that are safe because they only read (RFC 9110, section 9.2.1). */
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE']);
/** Longer than any request runs, because database statements have shorter timeouts. */
const OUTCOME_LIMIT_MS = 120_000;

/** What is known about a request. */
interface Outcome {
  /** The response's status, once there is one. */
  status?: number;
  /** The id of the resource that the request created. */
  created?: string;
  /** Whether the connection or the response has ended. */
  over?: true;
  written?: true;
}

/**
 * Writes the audit line of every request whose method may change something, including rejected ones. Uses hooks of the
 * server, so that new routes are audited automatically.
 *
 * A request continues after its client disconnects. Therefore the line is written when both the connection has ended
 * and the outcome is known, with the status that the client got or would have got.
 */
@Injectable()
export class RequestAudit implements OnModuleInit, BeforeApplicationShutdown {
  private readonly outcomes = new WeakMap<FastifyRequest, Outcome>();
  /** Requests whose client has disconnected but whose outcome is unknown yet, each with its timeout. */
  private readonly waiting = new Map<FastifyRequest, NodeJS.Timeout>();

  constructor(
    private readonly adapterHost: HttpAdapterHost,
    private readonly log: AuditLog,
  ) {}

  onModuleInit(): void {
    const fastify = this.adapterHost.httpAdapter.getInstance<FastifyInstance>();
    fastify.addHook('preSerialization', (request, _reply, payload, done) => {
      const outcome = this.outcomeOf(request);
      if (outcome) outcome.created = idIn(payload);
      done(null, payload);
    });
    fastify.addHook('onSend', (request, reply, payload, done) => {
      this.decided(request, reply);
      done(null, payload);
    });
    onRequestOver(fastify, (request) => this.over(request));
  }

  /** The requests that are still pending have an outcome that this process will not see. */
  beforeApplicationShutdown(): void {
    for (const request of this.waiting.keys()) this.write(request);
  }

  private outcomeOf(request: FastifyRequest): Outcome | undefined {
    if (SAFE_METHODS.has(request.method) || request.is404) return undefined;
    const outcome = this.outcomes.get(request) ?? {};
    this.outcomes.set(request, outcome);
    return outcome;
  }

  private decided(request: FastifyRequest, { statusCode }: FastifyReply): void {
    const outcome = this.outcomeOf(request);
    if (!outcome) return;
    outcome.status = statusCode;
    if (outcome.over) this.write(request);
  }

  private over(request: FastifyRequest): void {
    const outcome = this.outcomeOf(request);
    if (!outcome) return;
    outcome.over = true;
    // A request that was not received completely did nothing.
    if (outcome.status !== undefined || !request.raw.complete) this.write(request);
    else {
      const limit = setTimeout(() => this.write(request), OUTCOME_LIMIT_MS).unref();
      this.waiting.set(request, limit);
    }
  }

  private write(request: FastifyRequest & OwnedRequest): void {
    const outcome = this.outcomeOf(request);
    clearTimeout(this.waiting.get(request));
    this.waiting.delete(request);
    if (!outcome || outcome.written) return;
    outcome.written = true;
    const { status, created } = outcome;
    const { id: named } = request.params as { id?: string };
    this.log.write({
      user_id: request.owner?.userId ?? null,
      token_id: request.owner?.tokenId ?? null,
      action: `${request.method} ${request.routeOptions.url}`,
      // Only ids: a path may hold anything that a client mistook for an id, even a secret.
      object_id: named !== undefined && isUuid(named) ? named : (created ?? null),
      status: status ?? null,
      request_id: request.id,
    });
  }
}

/** The id of a created resource is only known from the response. */
function idIn(payload: unknown): string | undefined {
  const { id } = (payload ?? {}) as { id?: unknown };
  return typeof id === 'string' && isUuid(id) ? id : undefined;
}
