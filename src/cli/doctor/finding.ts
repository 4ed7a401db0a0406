import { firstLine } from '../command-line.js';

/** `skip`: could not be looked at, because of something else that is said. */
export type Verdict = 'ok' | 'warn' | 'fail' | 'skip';

/** What one check has found, in one sentence, and what to do about it where it is not `ok`. */
export interface Finding {
  check: string;
  verdict: Verdict;
  message: string;
  advice?: string;
}

/** What a check says without its name. */
export type Diagnosis = Omit<Finding, 'check'>;

export const ok = (message: string): Diagnosis => ({ verdict: 'ok', message });
export const warn = (message: string, advice: string): Diagnosis => ({
  verdict: 'warn',
  message,
  advice,
});
export const fail = (message: string, advice: string): Diagnosis => ({
  verdict: 'fail',
  message,
  advice,
});
export const skip = (message: string): Diagnosis => ({ verdict: 'skip', message });

/** Runs a check; one that breaks has failed. */
export async function diagnose(
  check: string,
  work: () => Promise<Diagnosis>,
  advice = 'see the message',
): Promise<Finding> {
  try {
    return { check, ...(await work()) };
  } catch (error) {
    return { check, ...fail(firstLine(error), advice) };
  }
}
