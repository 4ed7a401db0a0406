import type { ScriptPlan } from '../faults/script.js';
import type { StreamEvent } from '../faults/stream-reader.js';
import { compareTurn, type Differences } from '../faults/verify.js';

const PADDING = 'größer 数字 🚀 "quoted" \\back';
const STAMP = / @(\d+)\.(\d{3})\d*$/;

/** A session with this file in its working directory prints its last line and ends. */
export const OVER = 'over';

/** A bash script that prints 20 numbered lines a second, each with its time, until {@link OVER} is there or the clock says so. */
export function victimScript(endAt: number): string {
  return `
exec {tick}<> <(:)
padding='${PADDING}'
i=0
while [[ ! -e ${OVER} ]] && (( \${EPOCHREALTIME/./} / 1000 < ${endAt} )); do
  i=$((i + 1))
  printf 'out %d %s @%s\\n' "$i" "$padding" "$EPOCHREALTIME"
  read -rt 0.05 -u "$tick"
done
echo "count $i"`;
}

/** When a line was printed, in milliseconds; `undefined` for anything but a numbered line. */
export function printedAt(line: string): number | undefined {
  const [, seconds, milliseconds] = STAMP.exec(line) ?? [];
  return seconds === undefined ? undefined : Number(seconds + milliseconds);
}

/** @param whole false for a session that was cut short: what there is has to be the beginning. */
export function verifyVictim(events: readonly StreamEvent[], whole: boolean): Differences {
  const text = events
    .filter(({ type, stream }) => type === 'output' && stream === 'stdout')
    .map(({ data }) => data ?? '')
    .join('');
  const [, numbered = text, count] = /^(.*)count (\d+)\n$/s.exec(text) ?? [];
  // A cut-off session may end in the middle of a line's time.
  const stripped = numbered
    .split(/(?<=\n)/)
    .filter((line) => line.endsWith('\n'))
    .map((line) => line.trimEnd().replace(STAMP, '') + '\n');
  const plan: ScriptPlan = {
    lines: count === undefined ? stripped.length : Number(count),
    burst: 1,
    pause: 0.05,
    errorEvery: Number.POSITIVE_INFINITY,
    padding: PADDING,
    exitCode: 0,
  };
  const output = { type: 'output', stream: 'stdout', turn: 1, data: stripped.join('') } as const;
  const differences = compareTurn(plan, [output], 1, whole);
  if (whole && count === undefined) {
    differences.lost += 1;
    differences.notes.push('the last line is missing');
  }
  return differences;
}
