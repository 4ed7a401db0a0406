import { type Command, Option } from 'commander';
import type { SessionDetails, TurnDetails } from '../sessions/session-operations.js';
import { SESSION_STATUSES, type SessionStatus } from '../sessions/session-transitions.js';
import {
  countArgument,
  durationArgument,
  group,
  withExamples,
  duration,
  fields,
  table,
  usageError,
} from './command-line.js';
import { addFollowCommand } from './follow-command.js';
import { changes, type Operator, reads } from './operator.js';

const DEFAULT_LIMIT = 100;
const MAX_ERROR = 80;
const EXAMPLE_ID = '0d2f6c1e-6a3b-4f0e-9c55-2f1f7c1b7a10';

interface ListOptions {
  user?: string;
  status?: SessionStatus;
  provider?: string;
  agent?: string;
  newerThan?: number;
  limit?: number;
}

/** `sessions list`, `sessions show`, `sessions follow`, `sessions terminate`. */
export function addSessionCommands(program: Command, operator: Operator): void {
  const sessions = group(program, 'sessions', 'sessions of all users');
  addList(sessions, operator);

  reads(
    withExamples(
      sessions
        .command('show <id>')
        .description(
          'show a session with its turns and its sandbox; prompts and output are not shown',
        ),
      [`sessions show ${EXAMPLE_ID}`, `sessions show ${EXAMPLE_ID} --json`],
    ),
    operator,
    async ({ sessions: operations }, _options, id = '') => {
      const session = await operations.find(id);
      const turns = await operations.turns(id);
      return { json: { ...session, turns }, text: `${described(session)}\n\n${turnTable(turns)}` };
    },
  );

  addFollowCommand(sessions, operator);

  changes(
    withExamples(
      sessions.command('terminate <id>').description('end a session and free its sandbox'),
      [`sessions terminate ${EXAMPLE_ID}`],
    ),
    operator,
    async ({ sessions: operations }, _options, id = '') => {
      await operations.terminate(id);
      return { json: { id, status: 'terminated' }, text: `Terminated session ${id}` };
    },
  );
}

function addList(sessions: Command, operator: Operator): void {
  reads(
    withExamples(
      sessions
        .command('list')
        .description('list sessions, newest first; filters can be combined')
        .option('--user <name>', 'only sessions of this user')
        .addOption(
          new Option('--status <status>', 'only sessions in this state').choices(SESSION_STATUSES),
        )
        .option('--provider <name>', 'only sessions of this provider')
        .option('--agent <id>', 'only sessions of this agent')
        .option(
          '--newer-than <duration>',
          'only sessions created in the last 2h, 7d, …',
          durationArgument,
        )
        .option('--limit <n>', 'the maximum number of sessions', countArgument, DEFAULT_LIMIT),
      [
        'sessions list --status running',
        'sessions list --user alice --newer-than 24h',
        'sessions list --status failed --provider anthropic --json',
      ],
    ),
    operator,
    async (
      { sessions: operations, accounts },
      { agent, limit = DEFAULT_LIMIT, ...filter }: ListOptions,
    ) => {
      // A name that nobody has is an error, not an empty list.
      if (filter.user !== undefined) await accounts.getUser(filter.user);
      if (filter.provider !== undefined) await requireProvider(filter.provider);
      const records = await operations.list({ ...filter, agentId: agent, limit });
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
            brief(record.error),
          ]),
        ),
      };
    },
  );
}

/** Runtimes take time to load, which other commands need not wait for. */
async function requireProvider(name: string): Promise<void> {
  const { RUNTIMES } = await import('../runtimes/registry.js');
  const known = RUNTIMES.map(({ provider }) => provider);
  if (known.includes(name)) return;
  throw usageError(`there is no provider ${JSON.stringify(name)}: use ${known.join(', ')}`);
}

function described(session: SessionDetails): string {
  const version = (id: string | null, number: number | null) => id && `${id} version ${number}`;
  const sandbox =
    session.sandbox_driver && `${session.sandbox_driver} ${session.sandbox_host ?? ''}`;
  return fields([
    ['session', session.id],
    ['user', session.user],
    ['provider', session.provider],
    ['status', session.status],
    ['exit code', session.exit_code],
    ['error', brief(session.error)],
    ['agent', version(session.agent_id, session.agent_version)],
    ['environment', version(session.environment_id, session.environment_version)],
    ['timeout', duration(session.timeout * 1000)],
    ['created', session.created],
    ['updated', session.updated],
    ['sandbox', sandbox],
    ['  adopted', session.sandbox_adopted],
    ['  state', session.sandbox_state],
    ['  since', session.sandbox_state_since],
  ]);
}

function turnTable(turns: readonly TurnDetails[]): string {
  return table(
    ['TURN', 'STATUS', 'EXIT CODE', 'CREATED', 'WAITED', 'RAN', 'WORKER', 'ERROR'],
    turns.map((turn) => [
      turn.turn,
      turn.status,
      turn.exit_code,
      turn.created,
      turn.waited_ms === null ? null : duration(turn.waited_ms),
      turn.ran_ms === null ? null : duration(turn.ran_ms),
      turn.worker,
      brief(turn.error),
    ]),
  );
}

function brief(error: string | null): string | null {
  return error?.split('\n', 1)[0]?.slice(0, MAX_ERROR) ?? null;
}
