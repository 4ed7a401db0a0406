/**
 * SQLSTATEs that say "not now": connection exceptions, out of disk, memory or connections, shutdown, crash, start-up, a
 * server that is a standby for the moment, a statement that took too long or was in the way of another one.
 */
const SQLSTATES = /^(08...|53[0-3]00|57P0[1235]|25006|25P0[34]|57014|55P03|40001|40P01)$/;
const NODE_CODES = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ENOENT',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
]);
/** node-postgres has no codes for these; the last one's, 55000, says too many other things. */
const MESSAGES =
  /^(Connection terminated|Client has encountered a connection error|timeout exceeded when trying to connect|Client was closed|Cannot use a pool after calling end|not queryable|Query read timeout|database ".*" is not currently accepting connections)/;

/** Does this error say that PostgreSQL cannot be reached at the moment, rather than that a statement is wrong? */
export function isDatabaseUnavailable(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof AggregateError) return error.errors.some(isDatabaseUnavailable);
  const { code, syscall } = error as Error & { code?: unknown; syscall?: unknown };
  if (typeof code === 'string') {
    if (SQLSTATES.test(code)) return true;
    // A file that is missing is not a database that is: only what a socket said counts.
    if (NODE_CODES.has(code))
      return ['connect', 'read', 'write', 'getaddrinfo'].includes(String(syscall));
  }
  return (
    MESSAGES.test(error.message) ||
    ('driverError' in error && isDatabaseUnavailable(error.driverError))
  );
}
