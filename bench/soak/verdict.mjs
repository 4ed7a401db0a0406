import { table } from '../lib/markdown.mjs';
import { number } from '../lib/report.mjs';

/**
 * The metrics that must stay flat, and how much each may rise over the second half: a share of its value, or an
 * absolute amount if that is larger.
 */
export const FLAT = {
  residentMb: { label: 'resident memory, MB', share: 0.05, atLeast: 10 },
  usedMb: { label: 'heap and buffers in use after collection, MB', share: 0.05, atLeast: 4 },
  descriptors: { label: 'open descriptors', share: 0.05, atLeast: 8 },
  bytesPerMessage: { label: 'database bytes per message of 150', share: 0.03, atLeast: 0 },
  sandboxes: { label: 'sandboxes', share: 0.1, atLeast: 3 },
};

/** Adds the database's growth per message to samples. */
export const withRatios = (samples) =>
  samples.map((sample) => ({
    ...sample,
    bytesPerMessage: sample.messages > 0 ? sample.databaseBytes / sample.messages : Number.NaN,
  }));

/** Fits a line to the second half of the samples by least squares, for each of these metrics. */
export function judgeSoak(samples) {
  const half = samples.slice(Math.floor(samples.length / 2));
  return Object.entries(FLAT).map(([key, { label, share, atLeast }]) => {
    const points = half
      .map(({ seconds, [key]: value }) => [seconds, value])
      .filter(([, value]) => Number.isFinite(value));
    const line = regression(points);
    const [from, to] = [points[0][0], points.at(-1)[0]];
    const mean = points.reduce((sum, [, value]) => sum + value, 0) / points.length;
    const rise = line.slope * (to - from);
    const limit = Math.max(atLeast, mean * share);
    return {
      key,
      label,
      mean,
      rise,
      limit,
      perHour: line.slope * 3600,
      line,
      from,
      to,
      flat: rise <= limit,
    };
  });
}

function regression(points) {
  const count = points.length;
  const meanX = points.reduce((sum, [x]) => sum + x, 0) / count;
  const meanY = points.reduce((sum, [, y]) => sum + y, 0) / count;
  const over = points.reduce((sum, [x, y]) => sum + (x - meanX) * (y - meanY), 0);
  const under = points.reduce((sum, [x]) => sum + (x - meanX) ** 2, 0);
  const slope = under === 0 ? 0 : over / under;
  return { slope, at: (x) => meanY + slope * (x - meanX) };
}

export function toSoakTable(judged) {
  const rows = judged.map(({ label, mean, rise, limit, perHour, flat }) => [
    label,
    number(mean),
    signed(rise),
    `≤ ${number(limit)}`,
    signed(perHour),
    flat ? 'yes' : 'no',
  ]);
  const head = ['In the second half', 'Mean', 'Rise', 'Allowed', 'Per hour', 'Flat'];
  return table(head, rows);
}

const signed = (value) => `${value < 0 ? '−' : '+'}${number(Math.abs(value))}`;
