import { EventEmitter2 } from '@nestjs/event-emitter';
import { type Command, Option } from 'commander';
import type { DataSource } from 'typeorm';
import { DatabaseUrl } from '../database/database-url.js';
import { Notifications } from '../database/notifications.js';
import { Sql } from '../database/sql.js';
import { Doorbell } from '../event-log/doorbell.js';
import { SessionOperations } from '../sessions/session-operations.js';
import { SESSION_STATUSES, type SessionStatus } from '../sessions/session-transitions.js';
import { countArgument, group, type ReadConfig, runs } from './command-line.js';
import { withDatabase } from './operator-database.js';
import { table } from './output.js';

const DEFAULT_LIMIT = 100;
const MAX_ERROR = 80;

/** `sessions list`, `sessions terminate`. */
export function addSessionCommands(program: Command, readConfig: ReadConfig): void {
  const sessions = group(program, 'sessions', 'sessions of all users');

  runs(
    sessions
      .command('list')
      .description('list sessions, newest first')
      .option('--user <name>', 'only of this user')
      .addOption(new Option('--status <status>', 'only in this state').choices(SESSION_STATUSES))
      .option('--limit <n>', 'at most so many', countArgument, DEFAULT_LIMIT),
    async (options: { user?: string; status?: SessionStatus; limit?: number }) =>
      withDatabase(readConfig(), async (dataSource) => {
        const records = await operationsOn(dataSource).list({
          user: options.user ?? null,
          status: options.status ?? null,
          limit: options.limit ?? DEFAULT_LIMIT,
        });
        return {
          json: { sessions: records },
          text: table(
            ['ID', 'USER', 'PROVIDER', 'STATUS', 'TURNS', 'CREATED', 'ERROR'],
            records.map((record) => [
              record.id,
              record.user,
              record.provider,
              record.status,
              record.turns,
              record.created,
              record.error?.split('\n', 1)[0]?.slice(0, MAX_ERROR) ?? null,
            ]),
          ),
        };
      }),
  );

  runs(
    sessions.command('terminate <id>').description('end a session and free its sandbox'),
    async (_options, id = '') =>
      withDatabase(readConfig(), async (dataSource) => {
        await operationsOn(dataSource).terminate(id);
        return { json: { id, status: 'terminated' }, text: `Terminated session ${id}` };
      }),
  );
}

/** A doorbell that only rings: it is not started, so it hears nothing. */
function operationsOn(dataSource: DataSource): SessionOperations {
  const silent = new Notifications(new DatabaseUrl(''));
  return new SessionOperations(new Sql(dataSource), new Doorbell(new EventEmitter2(), silent));
}
