import type { Mallory, SessionPlan } from './mallory.js';

/** Where sandboxes are made. */
export type Driver = 'local' | 'docker';

/**
 * What an attack prints when it got more than it may have: then it has succeeded, however it ends. A shell that tells
 * of a killed command prints the script that would have printed it, which says nothing.
 */
const BREACH = /(?<!echo |["'])BREACH/;

/** One thing that a hostile user does. */
export interface Attack {
  name: string;
  /** What it does; for the table in docs/security.md. */
  what: string;
  /** How it has to end: a pattern of its {@link Ending}, best one that names the limit. */
  expected: RegExp;
  /** Default: all. */
  drivers?: readonly Driver[];
  /** It needs an environment with a setup script, hence a root file system that can be written. */
  software?: boolean;
  /** @returns how it ended, as one line. */
  run: (mallory: Mallory) => Promise<string>;
}

/** How an attack ended. */
export interface Ending {
  attack: string;
  /** One line: the terminal event and the last output, or the counts of the answers. */
  ending: string;
  held: boolean;
  seconds: number;
}

/** An attack from within a sandbox: each prompt is one turn of the same session. */
export function inSandbox(
  attack: Omit<Attack, 'run'> & Omit<SessionPlan, 'prompts'> & { prompts: readonly string[] },
): Attack {
  const { environment, agent, prompts, seconds } = attack;
  return { ...attack, run: (mallory) => mallory.session({ environment, agent, prompts, seconds }) };
}

/** Did the service hold? */
export function judge({ expected }: Pick<Attack, 'expected'>, ending: string): boolean {
  return expected.test(ending) && !BREACH.test(ending);
}
