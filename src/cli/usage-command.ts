import type { Command } from 'commander';
import { type UsageRecord, usageOfUsers } from '../usage/usage-report.js';
import { durationArgument, table, withExamples } from './command-line.js';
import { type Operator, reads } from './operator.js';

const DAY_SECONDS = 86_400;
const DEFAULT_DAYS = 30;

/** `usage`. */
export function addUsageCommand(program: Command, operator: Operator): void {
  reads(
    withExamples(
      program
        .command('usage')
        .description('show what users have used of models: requests, tokens and cost')
        .option('--user <name>', 'only this user')
        .option(
          '--since <duration>',
          `the last 7d, 30d, …, rounded up to whole days (UTC); default: ${DEFAULT_DAYS}d`,
          durationArgument,
        ),
      ['usage', 'usage --user alice --since 7d', 'usage --since 90d --json'],
      'A cost of "-" means that the price of the model is not known; see docs/usage.md.',
    ),
    operator,
    async ({ accounts, sql }, { user, since }: { user?: string; since?: number }) => {
      if (user !== undefined) await accounts.getUser(user);
      const days = Math.ceil((since ?? DEFAULT_DAYS * DAY_SECONDS) / DAY_SECONDS);
      const records = await usageOfUsers(sql, { user, days });
      return {
        json: { data: records },
        text: table(
          [
            'USER',
            'PROVIDER',
            'MODEL',
            'REQUESTS',
            'INPUT',
            'CACHE READ',
            'CACHE WRITE',
            'OUTPUT',
            'USD',
          ],
          records.map((record) => row(record)),
        ),
      };
    },
  );
}

function row(record: UsageRecord): (string | number | null)[] {
  return [
    record.user,
    record.provider,
    record.model,
    record.requests,
    record.input_tokens,
    record.cache_read_input_tokens,
    record.cache_creation_input_tokens,
    record.output_tokens,
    record.cost_usd === null ? null : record.cost_usd.toFixed(4),
  ];
}
