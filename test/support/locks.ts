import { query } from './service.js';
import { eventually } from './sessions.js';

/** Waits until a connection waits for a lock in the database. */
export async function untilBlocked(databaseUrl: string): Promise<void> {
  const waiting = `SELECT FROM pg_stat_activity
                    WHERE wait_event_type = 'Lock' AND datname = current_database()`;
  const blocked = async () => (await query(databaseUrl, waiting)).length > 0;
  await eventually(blocked, 'somebody to wait for a lock');
}
