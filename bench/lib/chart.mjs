import { number } from './report.mjs';

const ROW = 30;
const TOP = 64;
const LABEL = 330;
const PLOT = 420;
const VALUE = 190;
const TENFOLD = PLOT / 4;

/**
 * How far each figure is from its goal, on a logarithmic scale: to the right of the line it is better than asked for.
 * The whisker reaches over the rounds.
 * @param judged see `judge` in report.mjs
 */
export function toChart(judged, description) {
  const shown = judged.filter(({ missing }) => !missing);
  const height = TOP + shown.length * ROW + 40;
  const width = LABEL + PLOT + VALUE;
  const middle = LABEL + PLOT / 2;
  const x = (one, value) => {
    const headroom = one.atMost === undefined ? value / one.goal : one.goal / Math.max(value, 1e-9);
    const decades = Math.max(-2, Math.min(2, Math.log10(headroom)));
    return middle + decades * TENFOLD;
  };
  const bars = shown.map((one, at) => {
    const y = TOP + at * ROW;
    const end = x(one, one.median);
    const [low, high] = [x(one, one.min), x(one, one.max)].toSorted((a, b) => a - b);
    const sign = one.atMost === undefined ? '≥' : '≤';
    return `
  <text class="label" x="${LABEL - 14}" y="${y + 19}">${escape(one.label)}</text>
  <rect class="${one.met ? 'met' : 'missed'}" x="${fixed(Math.min(middle, end))}" y="${y + 7}" width="${fixed(Math.max(2, Math.abs(end - middle)))}" height="16" rx="2"/>
  <path class="rounds" d="M${fixed(low)} ${y + 15}H${fixed(high)}M${fixed(low)} ${y + 11}v8M${fixed(high)} ${y + 11}v8"/>
  <text class="value" x="${LABEL + PLOT + 14}" y="${y + 19}">${number(one.median)} <tspan class="goal">(${sign} ${number(one.goal)})</tspan></text>`;
  });
  const marks = [
    [-2, '100 × short'],
    [-1, '10 ×'],
    [0, 'the goal'],
    [1, '10 ×'],
    [2, '100 × better'],
  ].map(
    ([decades, text]) => `
  <line class="${decades === 0 ? 'axis' : 'grid'}" x1="${middle + decades * TENFOLD}" x2="${middle + decades * TENFOLD}" y1="${TOP - 6}" y2="${height - 34}"/>
  <text class="mark" x="${middle + decades * TENFOLD}" y="${TOP - 14}">${text}</text>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="Measured figures beside their goals">
<style>
  svg { background: #fff; font: 13px system-ui, sans-serif; }
  text { fill: #1f2933; } .label { text-anchor: end; } .goal, .mark, .note { fill: #6b7785; font-size: 11px; }
  .mark { text-anchor: middle; } .title { font-size: 16px; font-weight: 600; }
  .met { fill: #2f9e6e; } .missed { fill: #d1495b; } .rounds { stroke: #1f2933; fill: none; opacity: .6; }
  .grid { stroke: #e4e8ec; } .axis { stroke: #1f2933; }
</style>
  <text class="title" x="14" y="26">Measured beside the goals</text>${marks.join('')}${bars.join('')}
  <text class="note" x="14" y="${height - 12}">${escape(description)}</text>
</svg>
`;
}

const fixed = (value) => value.toFixed(1);
const escape = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
