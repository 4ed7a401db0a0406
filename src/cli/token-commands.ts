import type { Command } from 'commander';
import type { TokenRecord } from '../auth/accounts.js';
import { durationArgument, group, table, withExamples } from './command-line.js';
import { changes, type Operator, reads } from './operator.js';

/** `token create`, `token list`, `token revoke`. */
export function addTokenCommands(program: Command, operator: Operator): void {
  const tokens = group(program, 'token', 'access tokens');
  addCreate(tokens, operator);

  reads(
    withExamples(
      tokens
        .command('list')
        .description('list tokens, newest first, without their secrets')
        .option('--user <name>', 'only tokens of this user'),
      ['token list', 'token list --user alice', 'token list --json'],
    ),
    operator,
    async ({ accounts }, { user }: { user?: string }) => {
      if (user !== undefined) await accounts.getUser(user);
      const all = await accounts.listTokens(user);
      return {
        json: { data: all.map((token) => shownToken(token)) },
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
    },
  );

  changes(
    withExamples(
      tokens
        .command('revoke')
        .description('revoke a token: every process rejects it within 5 seconds')
        .argument('<id>', "the token's id, not the token"),
      ['token revoke 4f9b8a64-5a0c-4f5e-9d2b-0d6c4e1b7a55'],
    ),
    operator,
    async ({ accounts }, _options, id = '') => {
      await accounts.revokeToken(id);
      return { json: { id, revoked: true }, text: `Revoked token ${id}` };
    },
  );
}

function addCreate(tokens: Command, operator: Operator): void {
  changes(
    withExamples(
      tokens
        .command('create')
        .description('create a token and print it once; only its hash is stored')
        .requiredOption('--user <name>', 'the owner of the token')
        .option('--name <name>', 'what it is for')
        .option(
          '--expires <duration>',
          'how long it is valid, such as 90d; default: forever',
          durationArgument,
        ),
      [
        'token create --user alice --name laptop --expires 90d',
        'token create --user ci --json | jq -r .token',
      ],
    ),
    operator,
    async ({ accounts }, options: { user?: string; name?: string; expires?: number }) => {
      const { user = '', name = '', expires = null } = options;
      const issued = await accounts.createToken(user, name, expires);
      const validity =
        issued.expiresAt === null ? 'without an expiry' : `valid until ${issued.expiresAt}`;
      return {
        object: issued.id,
        json: {
          id: issued.id,
          token: issued.token,
          user: issued.userName,
          name: issued.name,
          expires_at: issued.expiresAt,
        },
        text: `${issued.token}\n\nToken ${issued.id} of ${issued.userName}, ${validity}. It is not shown again.`,
      };
    },
  );
}

function shownToken(token: TokenRecord) {
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
