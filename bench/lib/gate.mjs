import { number } from './report.mjs';

/** What a ratio may differ from the baseline in any case. */
const TOLERANCE = 0.1;

/** Ratios hold on any machine; absolute figures only on the one where they were measured. */
const ratios = (judged) => judged.filter(({ against, missing }) => against && !missing);
const keyOf = ({ row, label }) => `${row}: ${label}`;

/** The ratios of a run for the baseline. Those that this run has not measured stay as they were. */
export function toBaseline(judged, machine, before = { ratios: {} }) {
  const measured = ratios(judged).map((one) => [
    keyOf(one),
    {
      better: one.atMost === undefined ? 'higher' : 'lower',
      ...Object.fromEntries(
        ['median', 'min', 'max'].map((of) => [of, Number(one[of].toPrecision(4))]),
      ),
      machine: `${machine.description}, ${machine.date}`,
    },
  ]);
  const all = { ...before.ratios, ...Object.fromEntries(measured) };
  return {
    ratios: Object.fromEntries(Object.entries(all).toSorted(([a], [b]) => (a < b ? -1 : 1))),
  };
}

/**
 * Compares the ratios of a run with the baseline. A ratio is worse if all rounds of the run are worse than the baseline's
 * median, and their median is more than 10 % worse than the baseline's worst round: so the noise of both counts.
 * @returns a line for each ratio, how many were compared, and how many are worse
 */
export function compare(judged, baseline) {
  const result = { compared: 0, worse: 0, lines: [] };
  for (const one of ratios(judged)) {
    const before = baseline.ratios[keyOf(one)];
    if (before === undefined) {
      result.lines.push(`  --  ${keyOf(one)}: not in the baseline`);
      continue;
    }
    const isWorse =
      before.better === 'lower'
        ? one.min > before.median && one.median > before.max * (1 + TOLERANCE)
        : one.max < before.median && one.median < before.min * (1 - TOLERANCE);
    result.compared += 1;
    if (isWorse) result.worse += 1;
    result.lines.push(
      `  ${isWorse ? 'NO' : 'ok'}  ${keyOf(one)}: ${range(one)}, before ${range(before)}, ${before.better} is better`,
    );
  }
  return result;
}

function range({ median, min, max }) {
  return `${number(median)} (${number(min)} to ${number(max)})`;
}
