import { EventEmitter2 } from '@nestjs/event-emitter';
import { DatabaseUrl } from '../database/database-url.js';
import { Notifications } from '../database/notifications.js';
import type { Sql } from '../database/sql.js';
import { Doorbell } from '../event-log/doorbell.js';
import { SessionOperations } from '../sessions/session-operations.js';

/** What operators do with sessions; with a doorbell that only rings: it is not started, so it hears nothing. */
export function operationsOn(sql: Sql): SessionOperations {
  const silent = new Notifications(new DatabaseUrl(''));
  return new SessionOperations(sql, new Doorbell(new EventEmitter2(), silent));
}
