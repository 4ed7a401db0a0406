const MAX_CAUSES = 4;

/** An error as the log has it. */
export interface DescribedError {
  type: string;
  message: string;
  code?: string;
  stack?: string;
}

/**
 * What of an error is logged: its kind, message and stack, those of its causes, and nothing else. Errors of the database
 * carry the statement's parameters, of processes their environment.
 */
export function describeError(error: unknown): DescribedError {
  if (!(error instanceof Error)) return { type: typeof error, message: String(error) };
  const { code } = error as { code?: unknown };
  return {
    type: error.constructor.name,
    message: error.message,
    ...(typeof code === 'string' ? { code } : {}),
    stack: stackOf(error, 0),
  };
}

function stackOf(error: Error, depth: number): string {
  const own = error.stack ?? `${error.name}: ${error.message}`;
  const { cause } = error;
  if (!(cause instanceof Error) || depth === MAX_CAUSES) return own;
  return `${own}\ncaused by: ${stackOf(cause, depth + 1)}`;
}
