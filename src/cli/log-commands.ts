import type { Command } from 'commander';
import { LogPartitions } from '../event-log/log-partitions.js';
import { group, withExamples } from './command-line.js';
import { changes, type Operator } from './operator-database.js';

/** `logs purge`. */
export function addLogCommands(program: Command, operator: Operator): void {
  const logs = group(program, 'logs', 'the event log');

  changes(
    withExamples(
      logs
        .command('purge')
        .description(
          'drop the days that are older than LOG_RETENTION_DAYS; the service does so hourly',
        ),
      ['logs purge', 'logs purge --json'],
    ),
    operator,
    async ({ sql, config }) => {
      const dropped = await new LogPartitions(sql, config).dropExpired();
      return {
        json: { dropped },
        text: dropped.length === 0 ? 'Nothing to purge' : `Dropped ${dropped.join(', ')}`,
      };
    },
  );
}
