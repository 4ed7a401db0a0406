/** A `DATA_DIR` that the service cannot use as it is; the message is one line for the operator. */
export class DataDirError extends Error {
  override readonly name = 'DataDirError';
}

/** Whether `error` is a system error with one of these codes (`ENOENT`, `EACCES`, …). */
export function hasCode(error: unknown, ...codes: string[]): boolean {
  return (
    typeof error === 'object' &&
    error !== null &&
    'code' in error &&
    codes.includes(String(error.code))
  );
}
