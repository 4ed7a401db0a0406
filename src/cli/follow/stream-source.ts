import { PassThrough } from 'node:stream';
import { EventEmitter2 } from '@nestjs/event-emitter';
import { notFound, unauthorized } from '../../common/errors.js';
import { DatabaseUrl } from '../../database/database-url.js';
import { Notifications } from '../../database/notifications.js';
import { Doorbell } from '../../event-log/doorbell.js';
import { EventLogRepository } from '../../event-log/event-log.repository.js';
import { FeedHub } from '../../event-log/feed-hub.js';
import { StreamStates } from '../../sessions/stream-states.repository.js';
import { EventStream, type StreamContext } from '../../streaming/event-stream.js';
import { StreamFigures } from '../../streaming/stream-figures.js';
import { Unreachable } from '../exit-codes.js';
import type { OperatorDatabase } from '../operator-database.js';

/** Where a session's stream comes from. */
export interface StreamSource {
  /**
   * Connects, and gives what comes after the cursor until the connection ends.
   * @throws Refusal when it never will, Unreachable when it may later.
   */
  open(cursor: number): AsyncIterable<Uint8Array>;
  close(): Promise<void>;
}

/** The stream as a client of the service gets it. */
export function serviceSource(options: {
  url: string;
  token: string;
  sessionId: string;
}): StreamSource {
  const { url, token, sessionId } = options;
  return {
    async *open(cursor) {
      const response = await fetch(`${url}/sessions/${sessionId}/stream`, {
        headers: { authorization: `Bearer ${token}`, 'last-event-id': String(cursor) },
      }).catch((error: unknown) => {
        throw unreachable(url, error);
      });
      if (response.status === 401) throw unauthorized('The service refuses the token');
      if (response.status === 404)
        throw notFound('There is no such session of the owner of the token');
      if (response.status !== 200 || response.body === null) {
        throw new Unreachable(`${url} answers with the status ${response.status}`);
      }
      yield* response.body;
    },
    close: async () => undefined,
  };
}

/** The same stream made here, of what the database holds and tells: for every user's sessions, without a token. */
export function databaseSource(
  { sql, config, url }: OperatorDatabase,
  session: { id: string; userId: string },
): StreamSource {
  const notifications = new Notifications(new DatabaseUrl(url));
  const doorbell = new Doorbell(new EventEmitter2(), notifications);
  const hub = new FeedHub(doorbell, new EventLogRepository(sql, config));
  const states = new StreamStates(sql);
  const context: StreamContext = {
    hub,
    states,
    figures: new StreamFigures(),
    staleAfterSeconds: config.staleAfterSeconds,
    closed: () => undefined,
  };
  for (const part of [doorbell, hub, notifications]) part.onModuleInit();
  return {
    async *open(cursor) {
      const stream = await EventStream.open(context, session.userId, session.id, cursor);
      if (!stream) throw notFound('The session has been deleted');
      const out = new PassThrough();
      stream.begin(out);
      yield* out;
    },
    close: async () => {
      hub.onApplicationShutdown();
      doorbell.onApplicationShutdown();
      await notifications.onApplicationShutdown();
    },
  };
}

function unreachable(url: string, error: unknown): Unreachable {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const reason = cause instanceof Error ? cause.message || cause.name : String(cause);
  return new Unreachable(`${url} cannot be reached: ${reason}`, { cause: error });
}
