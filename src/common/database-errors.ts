/**
 * SQLSTATEs of a database that is unavailable for now: connection exceptions, out of disk, memory or connections,
 * shutdown, crash, start-up, a server that is a standby for the moment, a statement that took too long or was in the
 * way of another one.
 */
const SQLSTATES = /^(08...|53[0-3]00|57P0[1235]|25006|25P0[34]|57014|55P03|40001|40P01)$/;
const SQLSTATE = /^[0-9A-Z]{5}$/;
const SOCKET_CALLS = new Set(['connect', 'read', 'write', 'getaddrinfo']);
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
/**
 * Classes of errors that are transient although the server is available: operator intervention (57), insufficient
 * resources (53), system errors below PostgreSQL (58), and transactions rolled back because of others (40).
 */
const PASSING_CLASSES = /^(40|53|57|58)/;
/** Classes of errors in a statement's values: data exceptions, violated constraints, errors raised by functions. */
const DATA_CLASSES = /^(22|23|P0)/;
/** check_violation. PostgreSQL also reports it, without a constraint name, for a row that fits no partition. */
const CHECK_VIOLATION = '23514';
/** Severities with which the server ends the connection. It never does so because of a value in a statement. */
const CONNECTION_ENDED = new Set(['FATAL', 'PANIC']);
/** node-postgres has no codes for these errors. The last one has 55000, which has too many other meanings. */
const MESSAGES =
  /^(Connection terminated|Client has encountered a connection error|timeout exceeded when trying to connect|Client was closed|Cannot use a pool after calling end|not queryable|Query read timeout|database ".*" is not currently accepting connections)/;

/** Does this error mean that PostgreSQL cannot be reached now, rather than that a statement is wrong? */
export function isDatabaseUnavailable(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof AggregateError) return error.errors.some(isDatabaseUnavailable);
  const { code, syscall } = error as Error & { code?: unknown; syscall?: unknown };
  if (typeof code === 'string') {
    if (SQLSTATES.test(code)) return true;
    // Only errors of socket calls count: a missing file has the same code as a missing socket.
    if (NODE_CODES.has(code)) return SOCKET_CALLS.has(String(syscall));
  }
  return (
    MESSAGES.test(error.message) ||
    ('driverError' in error && isDatabaseUnavailable(error.driverError))
  );
}

/**
 * May the same statement succeed later, whatever its values? If not, it is repeated without the value that causes the
 * error.
 */
export function isTransient(error: unknown): boolean {
  if (isDatabaseUnavailable(error)) return true;
  if (!(error instanceof Error)) return false;
  const { code, severity, syscall } = error as Error & Record<string, unknown>;
  return (
    (typeof code === 'string' && SQLSTATE.test(code) && PASSING_CLASSES.test(code)) ||
    CONNECTION_ENDED.has(String(severity)) ||
    // Any error of a socket to the server, such as running out of file descriptors.
    SOCKET_CALLS.has(String(syscall)) ||
    ('driverError' in error && isTransient(error.driverError))
  );
}

/** Did the statement time out, or wait too long for a lock? One of its values may be the cause. */
export function isTimeout(error: unknown): boolean {
  const code = sqlStateOf(error);
  if (code !== undefined) return /^(57014|55P03|40P01)$/.test(code);
  return error instanceof Error && error.message.startsWith('Query read timeout');
}

/**
 * May the same statement with the same values succeed once an operator has repaired the database? True for errors that
 * are not about the values: a missing right, table or column, a damaged page, no partition for today. They must not
 * fail a turn. False for errors that this process raised itself.
 */
export function isRepairable(error: unknown): boolean {
  if (isTransient(error)) return true;
  const code = sqlStateOf(error);
  if (code === undefined) return false;
  return !DATA_CLASSES.test(code) || (code === CHECK_VIOLATION && !constraintOf(error));
}

/** The SQLSTATE of an error of the database; `undefined` for any other error. */
export function sqlStateOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code } = error as Error & { code?: unknown };
  // System errors may have codes of the same length: EPIPE.
  if (typeof code === 'string' && SQLSTATE.test(code) && 'severity' in error) return code;
  return 'driverError' in error ? sqlStateOf(error.driverError) : undefined;
}

function constraintOf(error: unknown): unknown {
  if (!(error instanceof Error)) return undefined;
  const { constraint, driverError } = error as Error & Record<string, unknown>;
  return constraint ?? constraintOf(driverError);
}

/**
 * Runs one statement for many items. If the database rejects it with a permanent error, splits the items in halves
 * until those that cause the error are alone. All others are processed.
 * @param run may be called again with the same items, so it must be idempotent
 * @param refused called at the end for each item with which the statement fails. `isAtFault`: the item causes the
 *   error. False if the error {@link isRepairable}, or if all of several items fail with the same error.
 * @returns the results of the runs, in the order of the items
 * @throws the error of `run` if it is transient
 */
export async function isolate<Item, Result>(
  items: readonly Item[],
  run: (items: readonly Item[]) => Promise<readonly Result[]>,
  refused: (
    item: Item,
    error: unknown,
    isAtFault: boolean,
  ) => readonly Result[] | Promise<readonly Result[]>,
): Promise<Result[]> {
  if (items.length === 0) return [];
  const done = await split(items, run);
  const codes = new Set(done.map((part) => ('item' in part ? sqlStateOf(part.error) : undefined)));
  const isCommon = items.length > 1 && codes.size === 1 && !codes.has(undefined);
  const results: Result[] = [];
  for (const part of done) {
    if ('item' in part) {
      const { item, error } = part;
      results.push(...(await refused(item, error, !isCommon && !isRepairable(error))));
    } else results.push(...part.results);
  }
  return results;
}

type Split<Item, Result> = { results: readonly Result[] } | { item: Item; error: unknown };

async function split<Item, Result>(
  items: readonly Item[],
  run: (items: readonly Item[]) => Promise<readonly Result[]>,
): Promise<Split<Item, Result>[]> {
  try {
    return [{ results: await run(items) }];
  } catch (error) {
    const [item] = items;
    if (isTransient(error) || item === undefined) throw error;
    if (items.length === 1) return [{ item, error }];
    const middle = Math.ceil(items.length / 2);
    return [
      ...(await split(items.slice(0, middle), run)),
      ...(await split(items.slice(middle), run)),
    ];
  }
}
