import { SANDBOX_STATES, type SandboxState } from '../sandboxes/lifecycle/sandbox-states.js';
import {
  countArgument,
  durationArgument,
  firstLine,
  group,
  withExamples,
  ExitCode,
  table,
} from './command-line.js';
import { type Command, Option } from 'commander';
import { changes, type Operator, reads } from './operator.js';

const DEFAULT_LIMIT = 100;
const REMARK = `The service does this itself every few seconds. Use the command on a host whose service does not run, to
see what the service would do, or to free space. Run it where the sandboxes are, as the user and with
the configuration of the service. Sandboxes of running sessions are never touched.`;

interface ReapOptions {
  dryRun?: boolean;
  idle?: number;
}

interface ListOptions {
  state?: SandboxState;
  limit?: number;
}

/** `sandboxes list`, `sandboxes reap`. */
export function addSandboxCommands(program: Command, operator: Operator): void {
  const sandboxes = group(program, 'sandboxes', 'sandboxes and their states');

  reads(
    withExamples(
      sandboxes
        .command('list')
        .description('list the sandboxes on record, of all hosts, newest first')
        .addOption(
          new Option('--state <state>', 'only sandboxes in this state').choices(SANDBOX_STATES),
        )
        .option('--limit <n>', 'the maximum number of sandboxes', countArgument, DEFAULT_LIMIT),
      ['sandboxes list', 'sandboxes list --state deleting', 'sandboxes list --json'],
    ),
    operator,
    async ({ sql }, { state, limit = DEFAULT_LIMIT }: ListOptions) => {
      const { listSandboxes } = await import('../sandboxes/lifecycle/sandbox-operations.js');
      const listed = await listSandboxes(sql, state, limit);
      return {
        json: { sandboxes: listed },
        text: table(
          ['SANDBOX', 'STATE', 'SINCE', 'SESSION', 'USER', 'DRIVER', 'HOST'],
          listed.map((each) => [
            each.id,
            each.state,
            each.since,
            each.session,
            each.user,
            each.driver,
            each.host,
          ]),
        ),
      };
    },
  );

  changes(
    withExamples(
      sandboxes
        .command('reap')
        .description('destroy sandboxes on this host that no session needs any more')
        .option('--dry-run', 'only list them')
        .option(
          '--idle <duration>',
          'also destroy sandboxes of completed sessions without a prompt for this long, overriding SANDBOX_IDLE_TTL; these sessions cannot be continued',
          durationArgument,
        ),
      ['sandboxes reap --dry-run', 'sandboxes reap --idle 1h', 'sandboxes reap --json'],
      REMARK,
    ),
    operator,
    async (database, { dryRun = false, idle }: ReapOptions) => {
      const { withSandboxes } = await import('./sandbox-access.js');
      const { SandboxOperations } = await import('../sandboxes/lifecycle/sandbox-operations.js');
      return withSandboxes(database.config, database.sql, async (access) => {
        const seconds = idle ?? database.config.sandbox.idleTtlSeconds;
        const operations = new SandboxOperations(database.sql, access);
        const found = await operations.find(seconds);
        const reaped = dryRun
          ? found.map((each) => ({ ...each, result: 'would be destroyed' }))
          : await operations.destroy(found, firstLine);
        const failed = reaped.filter(({ result }) => result.startsWith('failed')).length;
        return {
          object: dryRun ? 'dry run' : `${reaped.length - failed} sandboxes`,
          json: {
            dry_run: dryRun,
            sandboxes: reaped.map(({ sandboxId, reason, result }) => ({
              id: sandboxId,
              reason,
              result,
            })),
          },
          text:
            reaped.length === 0
              ? 'Nothing to reap'
              : table(
                  ['SANDBOX', 'WHY', 'RESULT'],
                  reaped.map(({ sandboxId, reason, result }) => [sandboxId, reason, result]),
                ),
          exitCode: failed === 0 ? ExitCode.done : ExitCode.failed,
        };
      });
    },
  );
}
