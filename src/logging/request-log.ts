import { Logger } from '@nestjs/common';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { isDatabaseUnavailable } from '../common/database-errors.js';
import { onRequestOver, PROBES, statusOf } from '../common/http/request-context.js';
import type { OwnedRequest } from '../common/request-decorators.js';
import { isUuid } from '../common/storable.js';
import { inWorkContext } from '../common/work-context.js';

const MAX_PATH = 256;

/** Writes one log line for each request when it is finished, or when its stream ends. */
export function logRequests(fastify: FastifyInstance): void {
  const logger = new Logger('Http');
  onRequestOver(fastify, (request, reply) => {
    noteIds(request);
    inWorkContext(request.work, () => write(logger, request, reply));
  });
}

function noteIds(request: FastifyRequest & OwnedRequest): void {
  const { work, owner, params } = request;
  work.userId = owner?.userId;
  const id = (params as { id?: string } | null)?.id;
  if (id !== undefined && request.route.includes('/sessions/') && isUuid(id)) {
    work.sessionId = id;
  }
}

function write(logger: Logger, request: FastifyRequest, reply: FastifyReply): void {
  const { method, url, failure } = request;
  const route = request.route;
  const status = statusOf(reply);
  // Logs the path without the query, which may hold anything that a client sends.
  const path = url.split('?', 1)[0]?.slice(0, MAX_PATH);
  const line = {
    msg: `${method} ${path} ${status}`,
    method,
    route,
    path,
    status,
    duration_ms: Math.round(reply.elapsedTime * 10) / 10,
  };
  if (status === 500 || (failure !== undefined && status < 500)) {
    logger.error({ ...line, err: failure });
  } else if (PROBES.has(route)) logger.debug(line);
  else if (status > 500) logger.warn({ ...line, reason: reasonOf(failure) });
  else logger.log(line);
}

/** The outage itself is logged once, where it is detected; here it is only the reason of a failed request. */
function reasonOf(failure: unknown): string | undefined {
  if (isDatabaseUnavailable(failure)) return 'the database is unavailable';
  return failure instanceof Error ? failure.message : undefined;
}
