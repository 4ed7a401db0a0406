import { stat } from 'node:fs/promises';

/** Is it an error of the system or of PostgreSQL with one of these codes (`ENOENT`, `EACCES`, …)? */
export function hasCode(error: unknown, ...codes: string[]): boolean {
  return (
    typeof error === 'object' &&
    error !== null &&
    'code' in error &&
    codes.includes(String(error.code))
  );
}

/** For `catch`: returns the value if the file or folder does not exist, and rethrows all other errors. */
export function ifMissing<T>(value: T): (error: unknown) => T {
  return (error) => {
    if (hasCode(error, 'ENOENT')) return value;
    throw error;
  };
}

/** Does this error prove that a file does not exist? */
export function isMissing(error: unknown): boolean {
  return hasCode(error, 'ENOENT', 'ENOTDIR');
}

/** Does a file or folder of this name exist? @throws the system's error if that is unknown */
export async function isThere(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}
