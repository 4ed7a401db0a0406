import { table } from './markdown.mjs';
import { spread } from './statistics.mjs';

/**
 * Evaluates each goal by the ratio of every round, so that other load on the machine affects both sides equally.
 * @param measured row name → contender → rounds, each with its metrics
 */
export function judge(rows, measured) {
  return Object.entries(measured).flatMap(([name, contenders]) =>
    rows[name].goals.map((goal) => {
      const own = contenders[goal.subject ?? 'service'];
      const other = goal.against && contenders[goal.against];
      const base = { row: name, ...goal, goal: goal.atMost ?? goal.atLeast };
      if (!own || (goal.against && !other)) return { ...base, missing: true };
      const values = own
        .map((round, at) =>
          other ? round[goal.metric] / other[at]?.[goal.metric] : round[goal.metric],
        )
        .filter(Number.isFinite);
      if (values.length === 0) return { ...base, missing: true };
      const { median, min, max } = spread(values);
      const met = goal.atMost === undefined ? median >= goal.atLeast : median <= goal.atMost;
      return { ...base, median, min, max, met };
    }),
  );
}

/** Summarises every metric of every contender over the rounds. */
export function figures(rows, measured) {
  return Object.entries(measured).flatMap(([row, contenders]) =>
    Object.entries(contenders).flatMap(([contender, rounds]) =>
      Object.entries(rows[row].metrics)
        .map(([metric, label]) => ({
          row,
          contender,
          metric,
          label,
          values: rounds.map((round) => round[metric]).filter(Number.isFinite),
        }))
        .filter(({ values }) => values.length > 0)
        .map(({ values, ...rest }) => ({ ...rest, ...spread(values) })),
    ),
  );
}

/** The tables of docs/performance.md. */
export function toMarkdown(rows, { machine, judged, measured }) {
  const goals = judged.map((one) => [
    one.label,
    `${one.atMost === undefined ? '≥' : '≤'} ${number(one.goal)}`,
    one.missing ? 'not measured here' : `**${number(one.median)}**`,
    one.missing ? '' : `${number(one.min)} to ${number(one.max)}`,
    one.missing ? '' : one.met ? 'yes' : 'no',
  ]);
  const details = figures(rows, measured).map((one) => [
    one.row,
    one.contender,
    one.label,
    number(one.median),
    `${number(one.min)} to ${number(one.max)}`,
  ]);
  return [
    `${machine.description}; ${machine.rounds} interleaved rounds, ${machine.date}.`,
    '',
    table(['Figure', 'Goal', 'Median', 'Rounds', 'Met'], goals),
    '',
    'The absolute figures, which only apply to this machine; the ratios above are more general.',
    '',
    table(['Row', 'Who', 'Figure', 'Median', 'Rounds'], details),
    '',
  ].join('\n');
}

/** Formats a number with three significant digits and separated thousands. */
export function number(value) {
  if (value >= 1000) return Math.round(value).toLocaleString('en');
  return String(Number(value.toPrecision(3)));
}
