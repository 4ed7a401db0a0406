import { type Command, InvalidArgumentError } from 'commander';
import { Accounts, type User } from '../auth/accounts.js';
import { countArgument, group, withExamples } from './command-line.js';
import { changes, type Operator, reads } from './operator-database.js';
import { table } from './output.js';

const DEFAULT = 'default';

/** `user create`, `user list`, `user limit`. */
export function addUserCommands(program: Command, operator: Operator): void {
  const users = group(program, 'user', 'users, whom tokens and resources belong to');

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
        ),
      ['user create alice', 'user create ci --session-limit 20 --json'],
    ),
    operator,
    async (
      { dataSource },
      { sessionLimit = null }: { sessionLimit?: number | null },
      name = '',
    ) => {
      const user = await new Accounts(dataSource).createUser(name, sessionLimit);
      return { json: shown(user), text: `Created user ${user.name} (${user.id})` };
    },
  );

  reads(
    withExamples(users.command('list').description('list all users, oldest first'), [
      'user list',
      'user list --json',
    ]),
    operator,
    async ({ dataSource }) => {
      const all = await new Accounts(dataSource).listUsers();
      return {
        json: { data: all.map((user) => shown(user)) },
        text: table(
          ['ID', 'NAME', 'SESSION LIMIT', 'CREATED'],
          all.map((user) => [user.id, user.name, user.sessionLimit, user.createdAt]),
        ),
      };
    },
  );

  changes(
    withExamples(
      users
        .command('limit')
        .description('change how many sessions a user may have at a time; active ones stay')
        .argument('<name>', 'whose limit it is')
        .argument('<limit>', `a number, or "${DEFAULT}" for SESSION_LIMIT`, limitArgument),
      ['user limit alice 20', `user limit alice ${DEFAULT}`, 'user limit alice 0 --json'],
    ),
    operator,
    async ({ dataSource }, _options, name = '', limit: unknown = null) => {
      const user = await new Accounts(dataSource).setSessionLimit(name, limit as number | null);
      const now = user.sessionLimit ?? 'SESSION_LIMIT';
      return { json: shown(user), text: `The session limit of ${user.name} is ${now}` };
    },
  );
}

function limitArgument(text: string): number | null {
  if (text === DEFAULT) return null;
  try {
    return countArgument(text);
  } catch {
    throw new InvalidArgumentError(`It takes a whole number from 0 to 1000000, or "${DEFAULT}".`);
  }
}

function shown(user: User) {
  const { id, name, sessionLimit, createdAt } = user;
  return { id, name, session_limit: sessionLimit, created_at: createdAt };
}
