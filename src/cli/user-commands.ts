import type { Command } from 'commander';
import { Accounts, type User } from '../auth/accounts.js';
import { countArgument, group, type ReadConfig, runs } from './command-line.js';
import { withDatabase } from './operator-database.js';
import { table } from './output.js';

/** `user create`, `user list`. */
export function addUserCommands(program: Command, readConfig: ReadConfig): void {
  const users = group(program, 'user', 'users, whom tokens and resources belong to');

  runs(
    users
      .command('create')
      .description('create a user')
      .argument('<name>', 'unique')
      .option(
        '--session-limit <n>',
        'concurrent sessions, instead of SESSION_LIMIT',
        countArgument,
      ),
    async ({ sessionLimit = null }: { sessionLimit?: number | null }, name = '') =>
      withDatabase(readConfig(), async (dataSource) => {
        const user = await new Accounts(dataSource).createUser(name, sessionLimit);
        return { json: shown(user), text: `Created user ${user.name} (${user.id})` };
      }),
  );

  runs(users.command('list').description('list all users, oldest first'), async () =>
    withDatabase(readConfig(), async (dataSource) => {
      const all = await new Accounts(dataSource).listUsers();
      return {
        json: { data: all.map((user) => shown(user)) },
        text: table(
          ['ID', 'NAME', 'SESSION LIMIT', 'CREATED'],
          all.map((user) => [user.id, user.name, user.sessionLimit, user.createdAt]),
        ),
      };
    }),
  );
}

function shown(user: User) {
  const { id, name, sessionLimit, createdAt } = user;
  return { id, name, session_limit: sessionLimit, created_at: createdAt };
}
