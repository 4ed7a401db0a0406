import { firstLine } from '../command-line.js';

/** `skip`: the check could not run because of another finding. */
export type Verdict = 'ok' | 'warn' | 'fail' | 'skip';

/** The result of a check in one sentence, and advice unless it is `ok`. */
export interface Finding {
  check: string;
  verdict: Verdict;
  message: string;
  advice?: string;
}

/** A finding without the check's name. */
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

/** Runs a check. A check that throws counts as failed. */
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
