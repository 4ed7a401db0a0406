import { isDatabaseUnavailable } from '../common/database-unavailable.js';
import { Refusal, type RefusalKind } from '../common/errors.js';
import { ConfigError } from '../config/parse.js';

/** What a command's exit code says; scripts may rely on it. */
export const ExitCode = {
  done: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  conflict: 4,
  unreachable: 5,
  configuration: 6,
  unsound: 7,
} as const;
export type ExitCode = (typeof ExitCode)[keyof typeof ExitCode];

export const EXIT_CODES_HELP = `
Exit codes:
  0  done
  1  failed for another reason, which standard error says in one line
  2  the command line is wrong
  3  there is no such user, token or session
  4  a conflict: it is there already, or its state does not allow that
  5  the database, or the service at --url, cannot be reached
  6  the configuration is wrong, or the encryption keys are not those of the database
  7  looked, and not all is well: a check of doctor failed, a turn that was followed did not end with 0
`;

const OF_REFUSALS: Partial<Record<RefusalKind, ExitCode>> = {
  bad_request: ExitCode.usage,
  not_found: ExitCode.notFound,
  conflict: ExitCode.conflict,
};
/** The server is there and does not let this client in; or the database is not. */
const NOT_LET_IN = new Set(['28000', '28P01', '3D000']);

/** Where a command needs something that cannot be reached. */
export class Unreachable extends Error {}

export function exitCodeOf(error: unknown): ExitCode {
  if (error instanceof Refusal) return OF_REFUSALS[error.kind] ?? ExitCode.failed;
  if (error instanceof ConfigError) return ExitCode.configuration;
  if (error instanceof Unreachable || isDatabaseUnavailable(error)) return ExitCode.unreachable;
  const { code, message } = error as { code?: unknown; message?: unknown };
  if (typeof code === 'string' && NOT_LET_IN.has(code)) return ExitCode.unreachable;
  // The key ring speaks of the variable that it comes from.
  if (String(message).startsWith('ENCRYPTION_KEYS')) return ExitCode.configuration;
  return ExitCode.failed;
}

/** In one word, for the audit log. */
export function resultOf(error: unknown): string {
  return error instanceof Refusal ? error.kind : 'failed';
}
