import type { Command } from 'commander';
import { badRequest, notFound } from '../common/errors.js';
import type { ModelApi } from '../runtimes/agent-runtime.js';
import { MODEL_API_NAMES } from '../runtimes/registry.js';
import type { UserKeys } from '../secrets/user-keys.js';
import { group, table, withExamples } from './command-line.js';
import { changes, type Operator, reads } from './operator.js';
import type { OperatorDatabase } from './operator-database.js';

const PROVIDERS = [...MODEL_API_NAMES.keys()].join(', ');
/** More than any key has, so that a wrong file is not read to its end. */
const MAX_INPUT_BYTES = 64 * 1024;

const HOW = `The key is read from standard input, because other users can see arguments. Turns that start from
now on use it instead of the configured key, and the provider bills it. Keys are encrypted with
ENCRYPTION_KEYS, never shown again, and never enter a sandbox.`;

/** `user key set`, `user key list`, `user key remove`. */
export function addUserKeyCommands(users: Command, operator: Operator): void {
  const keys = group(users, 'key', "a user's own keys for model providers");

  changes(
    withExamples(
      keys
        .command('set')
        .description("store a user's own key, read from standard input")
        .argument('<name>', 'the name of the user')
        .argument('<provider>', PROVIDERS),
      ['user key set alice anthropic', 'user key set alice gemini --json'],
      HOW,
    ),
    operator,
    async (database, _options, name = '', provider = '') => {
      const api = readProvider(provider);
      const { id } = await database.accounts.getUser(name);
      const key = await readKey();
      await (await userKeysIn(database)).set(id, api, key);
      return {
        object: `${name} ${api}`,
        json: { user: name, provider: api },
        text: `Stored the key of ${name} for ${api}`,
      };
    },
  );

  reads(
    withExamples(
      keys
        .command('list')
        .description('list the providers that a user has keys for, without the keys')
        .argument('<name>', 'the name of the user'),
      ['user key list alice', 'user key list alice --json'],
    ),
    operator,
    async (database, _options, name = '') => {
      const { id } = await database.accounts.getUser(name);
      const all = await (await userKeysIn(database)).list(id);
      return {
        json: {
          data: all.map(({ provider, createdAt, updatedAt }) => ({
            provider,
            created_at: createdAt,
            updated_at: updatedAt,
          })),
        },
        text: table(
          ['PROVIDER', 'CREATED', 'UPDATED'],
          all.map(({ provider, createdAt, updatedAt }) => [provider, createdAt, updatedAt]),
        ),
      };
    },
  );

  changes(
    withExamples(
      keys
        .command('remove')
        .description("remove a user's own key; a running turn keeps it until the turn ends")
        .argument('<name>', 'the name of the user')
        .argument('<provider>', PROVIDERS),
      ['user key remove alice anthropic', 'user key remove alice openai --json'],
    ),
    operator,
    async (database, _options, name = '', provider = '') => {
      const api = readProvider(provider);
      const { id } = await database.accounts.getUser(name);
      const removed = await (await userKeysIn(database)).remove(id, api);
      if (!removed) throw notFound(`${JSON.stringify(name)} has no key for ${api}`);
      return {
        object: `${name} ${api}`,
        json: { user: name, provider: api },
        text: `Removed the key of ${name} for ${api}`,
      };
    },
  );
}

async function userKeysIn({ sql, config }: OperatorDatabase): Promise<UserKeys> {
  const { UserKeys } = await import('../secrets/user-keys.js');
  const { loadRegisteredKeys } = await import('./key-ring.js');
  const ring = await loadRegisteredKeys(sql, config);
  return new UserKeys(sql, ring);
}

/** @throws DomainError that does not repeat the argument, which may be a key by mistake */
function readProvider(name: string): ModelApi {
  const api = MODEL_API_NAMES.get(name);
  if (api === undefined) throw badRequest(`Unknown provider: expected one of ${PROVIDERS}`);
  return api;
}

/** Reads a key from standard input and removes one newline at its end. @throws DomainError for a terminal */
async function readKey(): Promise<string> {
  if (process.stdin.isTTY) {
    throw badRequest('The key is read from standard input: pipe it, or redirect a file');
  }
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of process.stdin) {
    chunks.push(chunk as Buffer);
    bytes += (chunk as Buffer).length;
    if (bytes > MAX_INPUT_BYTES) break;
  }
  return Buffer.concat(chunks)
    .toString('utf8')
    .replace(/\r?\n$/, '');
}
