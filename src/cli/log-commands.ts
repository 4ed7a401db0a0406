import type { Command } from 'commander';
import { Sql } from '../database/sql.js';
import { LogPartitions } from '../event-log/log-partitions.js';
import { group, type ReadConfig, runs } from './command-line.js';
import { withDatabase } from './operator-database.js';

/** `logs purge`. */
export function addLogCommands(program: Command, readConfig: ReadConfig): void {
  const logs = group(program, 'logs', 'the event log');

  runs(
    logs
      .command('purge')
      .description(
        'drop the days that are older than LOG_RETENTION_DAYS; the service does so hourly',
      ),
    async () =>
      withDatabase(readConfig(), async (dataSource) => {
        const dropped = await new LogPartitions(new Sql(dataSource), readConfig()).dropExpired();
        return {
          json: { dropped },
          text: dropped.length === 0 ? 'Nothing to purge' : `Dropped ${dropped.join(', ')}`,
        };
      }),
  );
}
