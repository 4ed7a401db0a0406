import { type ArgumentsHost, Catch, type ExceptionFilter, HttpException } from '@nestjs/common';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { isDatabaseUnavailable } from '../database-errors.js';
import { InvalidBody, DomainError, type DomainErrorKind, type ValidationItem } from '../errors.js';
import { KnownRoutes } from './routes.js';

const STATUS: Record<DomainErrorKind, number> = {
  bad_request: 400,
  unauthorized: 401,
  not_found: 404,
  conflict: 409,
  unprocessable: 422,
  too_late: 408,
  too_large: 413,
  limit_reached: 429,
  upstream: 502,
  unavailable: 503,
};

/** Seconds until a client should retry when it has reached the limit of sessions. A session has to end first. */
const LIMIT_RETRY = '5';

const HEADERS: Partial<Record<DomainErrorKind, Record<string, string>>> = {
  unauthorized: { 'www-authenticate': 'Bearer' },
  limit_reached: { 'retry-after': LIMIT_RETRY },
};

/** The service's own messages for errors of Fastify. */
const FASTIFY_DETAIL: Record<string, string> = {
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: 'The request body does not match its Content-Length',
  FST_ERR_BAD_URL: 'Malformed URL',
};

interface Answer {
  status: number;
  body: { detail: string | readonly ValidationItem[]; [extra: string]: unknown };
  headers?: Record<string, string>;
}

/**
 * The only place that converts errors to statuses and the `detail` envelope. Stores internal errors on the request, for
 * its log line.
 */
@Catch()
export class DetailFilter implements ExceptionFilter {
  constructor(private readonly routes: KnownRoutes) {}

  catch(error: unknown, host: ArgumentsHost): void {
    const request = host.switchToHttp().getRequest<FastifyRequest>();
    const reply = host.switchToHttp().getResponse<FastifyReply>();
    const answer = this.answer(error, request);
    if (answer.status >= 500) request.failure = error;
    if (reply.sent || reply.raw.headersSent) {
      reply.raw.destroy();
      return;
    }
    void reply
      .code(answer.status)
      .headers({ 'content-type': 'application/json; charset=utf-8', ...answer.headers })
      .send(answer.body);
  }

  private answer(error: unknown, request: FastifyRequest): Answer {
    if (error instanceof DomainError) {
      return {
        status: STATUS[error.kind],
        body: { detail: error.message, ...error.extra },
        headers: {
          ...HEADERS[error.kind],
          ...(error.retryAfterSeconds !== undefined && {
            'retry-after': String(error.retryAfterSeconds),
          }),
        },
      };
    }
    if (error instanceof InvalidBody) return { status: 422, body: { detail: error.items } };
    if (isDatabaseUnavailable(error)) {
      return {
        status: 503,
        body: { detail: 'The database is unavailable; try again shortly' },
        headers: { 'retry-after': '1' },
      };
    }
    const status = statusOf(error);
    if (status === 404) return this.notFound(request);
    if (status === 413) return { status, body: { detail: 'The request body is too large' } };
    if (status !== undefined && status < 500) return { status, body: { detail: detailOf(error) } };
    return { status: 500, body: { detail: 'Internal server error' } };
  }

  private notFound(request: FastifyRequest): Answer {
    const methods = this.routes.methodsFor(request.raw.url ?? request.url);
    // A path such as `/agents/` matches one of our patterns with its method, but was not found.
    return methods.length === 0 || methods.includes(request.method)
      ? { status: 404, body: { detail: 'Not found' } }
      : {
          status: 405,
          body: { detail: 'Method not allowed' },
          headers: { allow: methods.join(', ') },
        };
  }
}

function statusOf(error: unknown): number | undefined {
  if (error instanceof HttpException) return error.getStatus();
  const status = (error as { statusCode?: unknown } | undefined)?.statusCode;
  return typeof status === 'number' && status >= 400 ? status : undefined;
}

function detailOf(error: unknown): string {
  const code = (error as { code?: unknown }).code;
  const known = typeof code === 'string' ? FASTIFY_DETAIL[code] : undefined;
  return known ?? (error instanceof Error ? error.message : 'Bad request');
}
