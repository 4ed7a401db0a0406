import { quote } from '../../src/common/shell-quote.js';
import type { Random } from './random.js';

const WORDS = ['plain', 'größer', '数字', '🚀🚀', 'tab\tbed', 'e\u0301', '"quoted"', '\\back'];

/** One turn's script: numbered lines on both streams, in bursts with pauses, and what it ends with. */
export interface ScriptPlan {
  lines: number;
  /** Lines between two pauses. */
  burst: number;
  /** Seconds. */
  pause: number;
  /** Every so many lines, one goes to stderr. */
  errorEvery: number;
  padding: string;
  exitCode: number;
}

/** @param seconds about how long it takes. */
export function planScript(random: Random, seconds: number, exitCode = 0): ScriptPlan {
  const burst = random.between(1, 25);
  const pause = random.between(5, 40) / 100;
  return {
    burst,
    pause,
    lines: Math.max(burst, Math.round((seconds / pause) * burst)),
    errorEvery: random.between(2, 5),
    padding: Array.from({ length: random.between(1, 12) }, () => random.pick(WORDS)).join(' '),
    exitCode,
  };
}

/** The plan as a bash script. It fails when an earlier turn's file is missing: the sandbox is to be the same. */
export function scriptOf(plan: ScriptPlan, turn: number): string {
  return `
set -u
${turn === 1 ? '' : `[ -e turn-${turn - 1} ] || { echo "turn ${turn - 1} left no file"; exit 99; }`}
touch turn-${turn}
padding=${quote(plan.padding)}
for ((i = 1; i <= ${plan.lines}; i++)); do
  printf 'out %d %s\\n' "$i" "$padding"
  ((i % ${plan.errorEvery})) || printf 'err %d %s\\n' "$((i / ${plan.errorEvery}))" "$padding" >&2
  ((i % ${plan.burst})) || sleep ${plan.pause}
done
exit ${plan.exitCode}
`;
}

/** What the script writes to each stream. */
export function expectedOutput(plan: ScriptPlan): { stdout: string; stderr: string } {
  const lines = (name: string, count: number): string =>
    Array.from({ length: count }, (_line, index) => `${name} ${index + 1} ${plan.padding}\n`).join(
      '',
    );
  return {
    stdout: lines('out', plan.lines),
    stderr: lines('err', Math.floor(plan.lines / plan.errorEvery)),
  };
}
