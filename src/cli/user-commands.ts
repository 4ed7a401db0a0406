import { Argument, type Command, InvalidArgumentError } from 'commander';
import type { User, UserLimits } from '../auth/accounts.js';
import {
  group,
  withExamples,
  amountArgument,
  table,
  countArgument,
  sizeArgument,
  tokensArgument,
} from './command-line.js';
import { changes, type Operator, reads } from './operator.js';
import { addUserKeyCommands } from './user-key-commands.js';

const DEFAULT = 'default' as const;

/** `user create`, `user list`, `user limit`, `user operator`, and those of `user key`. */
export function addUserCommands(program: Command, operator: Operator): void {
  const users = group(program, 'user', 'users, the owners of tokens and resources');

  changes(
    withExamples(
      users
        .command('create')
        .description('create a user')
        .argument('<name>', 'unique')
        .option(
          '--session-limit <n>',
          'concurrent sessions, instead of SESSION_LIMIT',
          countArgument,
        )
        .option('--operator', 'may see and change what belongs to all users: docs/console.md'),
      [
        'user create alice',
        'user create ci --session-limit 20 --json',
        'user create ops --operator',
      ],
    ),
    operator,
    async (
      { accounts },
      { sessionLimit = null, operator: operates = false }: CreateOptions,
      name = '',
    ) => {
      const user = await accounts.createUser(name, sessionLimit, operates);
      return { json: shown(user), text: `Created user ${user.name} (${user.id})` };
    },
  );

  reads(
    withExamples(users.command('list').description('list all users, oldest first'), [
      'user list',
      'user list --json',
    ]),
    operator,
    async ({ accounts }) => {
      const all = await accounts.listUsers();
      return {
        json: { data: all.map((user) => shown(user)) },
        text: table(
          [
            'ID',
            'NAME',
            'OPERATOR',
            'SESSION LIMIT',
            'SANDBOXES',
            'STORED BYTES',
            'OF',
            'REQUESTS/MIN',
            'STREAMS',
            'TOKENS/MONTH',
            'USD/MONTH',
            'CREATED',
          ],
          all.map((user) => [
            user.id,
            user.name,
            user.operator ? 'yes' : null,
            user.sessionLimit,
            user.sandboxesPerUser,
            user.storedBytes,
            user.storedBytesPerUser,
            user.requestsPerMinute,
            user.streamsPerUser,
            user.tokensPerMonth,
            user.usdPerMonth,
            user.createdAt,
          ]),
        ),
      };
    },
  );

  changes(
    withExamples(
      users
        .command('limit')
        .description('show or change the limits of a user; existing resources are kept')
        .argument('<name>', 'the name of the user')
        .argument('[sessions]', 'the same as --sessions', orDefault(countArgument))
        .option('--sessions <n>', 'concurrent sessions; 0 for none', orDefault(countArgument))
        .option('--sandboxes <n>', 'kept sandboxes', orDefault(countArgument))
        .option('--stored-bytes <size>', 'text of agents and environments', orDefault(sizeArgument))
        .option('--requests-per-minute <n>', 'requests a minute', orDefault(countArgument))
        .option('--streams <n>', 'open streams in each process', orDefault(countArgument))
        .option('--tokens-per-month <n>', 'tokens of models', orDefault(tokensArgument))
        .option('--usd-per-month <n>', 'cost of models, in USD', orDefault(amountArgument)),
      [
        'user limit alice --sessions 20',
        'user limit alice --stored-bytes 2GiB --requests-per-minute 600',
        'user limit alice --tokens-per-month 50000000 --usd-per-month 200',
        `user limit alice --streams ${DEFAULT} --json`,
      ],
      `"${DEFAULT}" follows the configuration again: SESSION_LIMIT, SANDBOXES_PER_USER,\n` +
        'STORED_BYTES_PER_USER, REQUESTS_PER_MINUTE, STREAMS_PER_USER, TOKENS_PER_MONTH,\n' +
        'USD_PER_MONTH. 0 means no fixed limit, except that 0 sessions means none. A month is\n' +
        'one of the calendar, in UTC. Without an option, the limits are shown.',
    ),
    operator,
    async ({ accounts }, options: LimitOptions, name = '', sessions?: unknown) => {
      const limits: Partial<UserLimits> = withoutUndefined({
        sessionLimit: options.sessions ?? (sessions as Limit | undefined),
        sandboxesPerUser: options.sandboxes,
        storedBytesPerUser: options.storedBytes,
        requestsPerMinute: options.requestsPerMinute,
        streamsPerUser: options.streams,
        tokensPerMonth: options.tokensPerMonth,
        usdPerMonth: options.usdPerMonth,
      });
      const user = await accounts.setLimits(name, limits);
      return { json: shown(user), text: limitsText(user, limits) };
    },
  );

  changes(
    withExamples(
      users
        .command('operator')
        .description('make a user an operator, or take it back; processes know within 5 seconds')
        .argument('<name>', 'the name of the user')
        .addArgument(new Argument('<state>').choices(['on', 'off'])),
      ['user operator alice on', 'user operator alice off'],
    ),
    operator,
    async ({ accounts }, _options, name = '', state = '') => {
      const user = await accounts.setOperator(name, state === 'on');
      const is = user.operator ? 'is an operator' : 'is no operator';
      return { json: shown(user), text: `User ${user.name} ${is}` };
    },
  );

  addUserKeyCommands(users, operator);
}

interface CreateOptions {
  sessionLimit?: number | null;
  operator?: boolean;
}

/** The new value of a limit; `DEFAULT` stands for the configured value. */
type Limit = number | typeof DEFAULT;

interface LimitOptions {
  sessions?: Limit;
  sandboxes?: Limit;
  storedBytes?: Limit;
  requestsPerMinute?: Limit;
  streams?: Limit;
  tokensPerMonth?: Limit;
  usdPerMonth?: Limit;
}

/** The label of each limit, and the variable that it overrides. */
const LIMITS: Record<keyof UserLimits, readonly [what: string, variable: string]> = {
  sessionLimit: ['session limit', 'SESSION_LIMIT'],
  sandboxesPerUser: ['limit of kept sandboxes', 'SANDBOXES_PER_USER'],
  storedBytesPerUser: ['limit of stored bytes', 'STORED_BYTES_PER_USER'],
  requestsPerMinute: ['limit of requests a minute', 'REQUESTS_PER_MINUTE'],
  streamsPerUser: ['limit of open streams', 'STREAMS_PER_USER'],
  tokensPerMonth: ['limit of tokens a month', 'TOKENS_PER_MONTH'],
  usdPerMonth: ['limit of USD a month', 'USD_PER_MONTH'],
};

function limitsText(user: User, changed: Partial<UserLimits>): string {
  const names = Object.keys(LIMITS) as (keyof UserLimits)[];
  const told = names.filter((name) => Object.keys(changed).length === 0 || name in changed);
  return told
    .map((name) => {
      const [what, variable] = LIMITS[name];
      return `The ${what} of ${user.name} is ${user[name] ?? variable}`;
    })
    .join('\n');
}

/** Returns the given value, or `null` for `DEFAULT`. */
function withoutUndefined(
  limits: Record<keyof UserLimits, Limit | undefined>,
): Partial<UserLimits> {
  return Object.fromEntries(
    Object.entries(limits)
      .filter(([, limit]) => limit !== undefined)
      .map(([name, limit]) => [name, limit === DEFAULT ? null : limit]),
  );
}

/** Parses an argument that also accepts `DEFAULT`. */
function orDefault(parse: (text: string) => number): (text: string) => Limit {
  return (text) => {
    if (text === DEFAULT) return DEFAULT;
    try {
      return parse(text);
    } catch (error) {
      const takes = error instanceof InvalidArgumentError ? error.message : 'Invalid.';
      throw new InvalidArgumentError(`${takes} Or "${DEFAULT}".`);
    }
  };
}

function shown(user: User) {
  return {
    id: user.id,
    name: user.name,
    operator: user.operator,
    session_limit: user.sessionLimit,
    sandboxes_per_user: user.sandboxesPerUser,
    stored_bytes_per_user: user.storedBytesPerUser,
    requests_per_minute: user.requestsPerMinute,
    streams_per_user: user.streamsPerUser,
    tokens_per_month: user.tokensPerMonth,
    usd_per_month: user.usdPerMonth,
    stored_bytes: user.storedBytes,
    created_at: user.createdAt,
  };
}
