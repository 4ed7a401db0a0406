import { PassThrough } from 'node:stream';
import { EventEmitter2 } from '@nestjs/event-emitter';
import { notFound } from '../common/errors.js';
import { LoopTurns } from '../common/loop-turns.js';
import { DatabaseUrl } from '../database/data-source.js';
import { Notifications } from '../database/notifications.js';
import { EventLogRepository } from '../event-log/event-log.repository.js';
import { Notifier } from '../event-log/log-notifications.js';
import { FeedHub } from '../event-log/session-feed.js';
import { StreamStates } from '../sessions/stream-states.repository.js';
import { EventStream, type StreamContext } from '../streaming/event-stream.js';
import { StreamStats } from '../streaming/stream-client.js';
import type { OperatorDatabase } from './operator-database.js';
import type { StreamSource } from './stream-source.js';

/** Creates the stream of a session in this process from the database. It needs no token and can read sessions of all users. */
export function databaseSource(
  { sql, config, url }: OperatorDatabase,
  session: { id: string; userId: string },
): StreamSource {
  const notifications = new Notifications(new DatabaseUrl(url));
  const notifier = new Notifier(new EventEmitter2(), notifications);
  const hub = new FeedHub(notifier, new EventLogRepository(sql, config));
  const states = new StreamStates(sql, config);
  const context: StreamContext = {
    hub,
    states,
    stats: new StreamStats(),
    staleAfterSeconds: config.staleAfterSeconds,
    turns: new LoopTurns(),
    stallMs: 0,
    closed: () => undefined,
  };
  // Operators need no token.
  const owner = { userId: session.userId, tokenId: '' };
  for (const part of [notifier, hub, notifications]) part.onModuleInit();
  return {
    async *open(cursor) {
      const stream = await EventStream.open(context, owner, session.id, cursor);
      if (!stream) throw notFound('The session has been deleted');
      const out = new PassThrough();
      stream.begin(out);
      yield* out;
    },
    close: async () => {
      hub.onApplicationShutdown();
      notifier.onApplicationShutdown();
      await notifications.onApplicationShutdown();
    },
  };
}
