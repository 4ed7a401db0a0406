import { expectedOutput, type ScriptPlan } from './script.js';
import type { StreamEvent } from './stream-reader.js';

/** How a stream differs from what was written. */
export interface Differences {
  lost: number;
  repeated: number;
  reordered: number;
  /** One line for each that was found, for whoever looks into it. */
  notes: string[];
}

/**
 * Compares what readers got of one turn with what its script wrote.
 * @param complete false for a turn that was cut short: then what there is has to be the beginning.
 */
export function compareTurn(
  plan: ScriptPlan,
  events: readonly StreamEvent[],
  turn: number,
  complete: boolean,
): Differences {
  const differences: Differences = { lost: 0, repeated: 0, reordered: 0, notes: [] };
  const expected = expectedOutput(plan);
  for (const stream of ['stdout', 'stderr'] as const) {
    const got = events
      .filter((event) => event.type === 'output' && event.stream === stream && event.turn === turn)
      .map((event) => event.data ?? '')
      .join('');
    const wanted = expected[stream];
    if (complete ? got === wanted : wanted.startsWith(got)) continue;
    count(differences, wanted.split('\n'), got.split('\n'), `turn ${turn} ${stream}`, complete);
  }
  return differences;
}

/** Tells what kind of difference it is, by the numbers of the lines. */
function count(
  differences: Differences,
  wanted: readonly string[],
  got: readonly string[],
  where: string,
  complete: boolean,
): void {
  const numbers = got.map((line) => Number(/^(?:out|err) (\d+) /.exec(line)?.[1] ?? Number.NaN));
  const seen = new Set<number>();
  let highest = 0;
  let repeated = 0;
  let reordered = 0;
  for (const number of numbers) {
    if (Number.isNaN(number)) continue;
    if (seen.has(number)) repeated += 1;
    else if (number < highest) reordered += 1;
    seen.add(number);
    highest = Math.max(highest, number);
  }
  const last = complete ? wanted.length - 1 : highest;
  const lost = Math.max(0, last - seen.size);
  differences.repeated += repeated;
  differences.reordered += reordered;
  // Whatever it is that the numbers do not show counts as a loss: the text is not the same.
  differences.lost += lost + repeated + reordered === 0 ? 1 : lost;
  const at = got.findIndex((line, index) => line !== wanted[index]);
  differences.notes.push(
    `${where}: ${lost} lost, ${repeated} repeated, ${reordered} reordered; at line ${at + 1} ` +
      `${JSON.stringify(got[at]?.slice(0, 60))} instead of ${JSON.stringify(wanted[at]?.slice(0, 60))}`,
  );
}
