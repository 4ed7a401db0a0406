import { hostname, userInfo } from 'node:os';
import type { Command, OptionValues } from 'commander';
import type { AppConfig } from '../config/app-config.js';
import { type CommandOutput, runs } from './command-line.js';
import type { OperatorDatabase } from './operator-database.js';

/**
 * The operator and the configuration. The configuration is read when a command needs it, so that `--help` works with an
 * invalid one.
 */
export interface Operator {
  readonly name: string;
  readConfig(): AppConfig;
}

/** The operator's name for the audit log: `alice@host`, or `alice(root)@host` under sudo. */
export function operatorName(sudoUser: string | undefined): string {
  const account = accountName();
  const who = sudoUser === undefined || sudoUser === '' ? account : `${sudoUser}(${account})`;
  return `${who}@${hostname()}`;
}

/** Falls back to the numeric user id, because users of containers often have no name. */
function accountName(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.geteuid?.() ?? '?'}`;
  }
}

type DatabaseWork<Output> = (
  database: OperatorDatabase,
  options: OptionValues,
  ...args: string[]
) => Promise<Output>;

/** Completes the definition of a command that only reads from the database. */
export function reads(
  command: Command,
  operator: Operator,
  work: DatabaseWork<CommandOutput>,
): void {
  runs(command, async (options, ...args) => {
    const config = operator.readConfig();
    const { withDatabase } = await import('./operator-database.js');
    return withDatabase(config, (database) => work(database, options, ...args));
  });
}

/**
 * Completes the definition of a command that changes something. It is recorded in the audit log whether it succeeds or
 * fails. The object in the record is the command's first argument unless its output names another.
 */
export function changes(
  command: Command,
  operator: Operator,
  work: DatabaseWork<CommandOutput & { object?: string }>,
): void {
  runs(command, async (options, ...args) => {
    const config = operator.readConfig();
    const { audited, withDatabase } = await import('./operator-database.js');
    return withDatabase(config, (database) =>
      audited(command, operator, database, args[0], () => work(database, options, ...args)),
    );
  });
}
