import type { Command } from 'commander';
import { Accounts, type TokenRecord } from '../auth/accounts.js';
import { durationArgument, group, type ReadConfig, runs } from './command-line.js';
import { withDatabase } from './operator-database.js';
import { table } from './output.js';

/** `token create`, `token list`, `token revoke`. */
export function addTokenCommands(program: Command, readConfig: ReadConfig): void {
  const tokens = group(program, 'token', 'access tokens');

  runs(
    tokens
      .command('create')
      .description('create a token and print it: this once, only its hash is kept')
      .requiredOption('--user <name>', 'whose token it is')
      .option('--name <name>', 'what it is for')
      .option(
        '--expires <duration>',
        'how long it is valid, such as 90d; without, for ever',
        durationArgument,
      ),
    async ({
      user = '',
      name = '',
      expires = null,
    }: {
      user?: string;
      name?: string;
      expires?: number | null;
    }) =>
      withDatabase(readConfig(), async (dataSource) => {
        const issued = await new Accounts(dataSource).createToken(user, name, expires);
        return {
          json: {
            id: issued.id,
            token: issued.token,
            user: issued.userName,
            name: issued.name,
            expires_at: issued.expiresAt,
          },
          text: `${issued.token}\n\nToken ${issued.id} of ${issued.userName}, ${
            issued.expiresAt === null ? 'without an expiry' : `valid until ${issued.expiresAt}`
          }. It is not shown again.`,
        };
      }),
  );

  runs(
    tokens.command('list').description('list all tokens, newest first, without their secrets'),
    async () =>
      withDatabase(readConfig(), async (dataSource) => {
        const all = await new Accounts(dataSource).listTokens();
        return {
          json: { data: all.map((token) => shown(token)) },
          text: table(
            ['ID', 'USER', 'NAME', 'CREATED', 'LAST USED', 'EXPIRES', 'REVOKED'],
            all.map((token) => [
              token.id,
              token.userName,
              token.name,
              token.createdAt,
              token.lastUsedAt,
              token.expiresAt,
              token.revokedAt,
            ]),
          ),
        };
      }),
  );

  runs(
    tokens
      .command('revoke')
      .description('revoke a token: every process refuses it within 5 seconds')
      .argument('<id>', "the token's id, not the token"),
    async (_options, id = '') =>
      withDatabase(readConfig(), async (dataSource) => {
        await new Accounts(dataSource).revokeToken(id);
        return { json: { id, revoked: true }, text: `Revoked token ${id}` };
      }),
  );
}

function shown(token: TokenRecord) {
  return {
    id: token.id,
    user: token.userName,
    name: token.name,
    created_at: token.createdAt,
    last_used_at: token.lastUsedAt,
    expires_at: token.expiresAt,
    revoked_at: token.revokedAt,
  };
}
