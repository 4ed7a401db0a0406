import { number } from '../lib/report.mjs';

const WIDTH = 940;
const PANEL = 150;
const TOP = 64;
const LEFT = 76;
const PLOT = WIDTH - LEFT - 24;
const PLOT_HEIGHT = 92;
const SHOWN = ['usedMb', 'residentMb', 'descriptors', 'bytesPerMessage'];

/**
 * Draws the metrics that must stay flat during the run, each from zero, with a regression line through its second half.
 */
export function toSoakChart(samples, judged, note) {
  const panels = judged.filter(({ key }) => SHOWN.includes(key));
  const end = samples.at(-1).seconds;
  const x = (seconds) => LEFT + (seconds / end) * PLOT;
  const height = TOP + panels.length * PANEL + 20;
  const drawn = panels.map((one, at) => panel(one, { samples, x, top: TOP + at * PANEL, end }));
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="Memory, descriptors and database size per message over the run">
<style>
  svg { background: #fff; font: 13px system-ui, sans-serif; }
  text { fill: #1f2933; } .note, .mark { fill: #5d6875; font-size: 11px; } .mark.left { text-anchor: end; }
  .mark.middle { text-anchor: middle; } .title { font-size: 17px; font-weight: 600; } .name { font-weight: 600; }
  .grid { stroke: #e1e6eb; } .values { fill: none; stroke: #3b7dd8; stroke-width: 1.6; } .half { fill: #3b7dd8; opacity: .06; }
  .flat { stroke: #1d8a5f; stroke-width: 2; } .rising { stroke: #cf3f52; stroke-width: 2; } .flat-text { fill: #1d8a5f; } .rising-text { fill: #cf3f52; }
  @media (prefers-color-scheme: dark) {
    svg { background: #14181d; } text { fill: #e8ecf0; } .note, .mark { fill: #9aa6b2; } .grid { stroke: #2c343c; }
    .values { stroke: #6ca6f0; } .half { fill: #6ca6f0; opacity: .08; } .flat { stroke: #43b788; } .rising { stroke: #ef6b7b; }
    .flat-text { fill: #43b788; } .rising-text { fill: #ef6b7b; }
  }
</style>
  <text class="title" x="16" y="27">Soak: ${duration(end)} at half load</text>
  <text class="note" x="16" y="46">${escape(note)}</text>
${drawn.join('\n')}
</svg>
`;
}

function panel({ key, label, rise, flat, line, from, to }, { samples, x, top, end }) {
  const points = samples.filter((sample) => Number.isFinite(sample[key]));
  // In the first seconds each message costs more; the line may leave the chart there.
  const later = Math.max(...points.filter(({ seconds }) => seconds >= from).map((one) => one[key]));
  const most = ceiling(Math.min(Math.max(...points.map((one) => one[key])), 2 * later));
  const bottom = top + 34 + PLOT_HEIGHT;
  const y = (value) => bottom - (Math.min(value, most * 1.05) / most) * PLOT_HEIGHT;
  const path = points.map((one) => `${fixed(x(one.seconds))} ${fixed(y(one[key]))}`).join('L');
  const grid = [0, most / 2, most].map(
    (value) => `
  <line class="grid" x1="${LEFT}" x2="${LEFT + PLOT}" y1="${fixed(y(value))}" y2="${fixed(y(value))}"/>
  <text class="mark left" x="${LEFT - 8}" y="${fixed(y(value) + 4)}">${number(value)}</text>`,
  );
  const times = [0, 1, 2, 3, 4].map(
    (quarter) =>
      `<text class="mark middle" x="${fixed(x((end * quarter) / 4))}" y="${bottom + 16}">${duration((end * quarter) / 4)}</text>`,
  );
  const word = flat ? 'flat' : 'rising';
  const change = `${rise < 0 ? '−' : '+'}${number(Math.abs(rise))} over the second half: ${word}`;
  return `  <text class="name" x="${LEFT}" y="${top + 20}">${escape(label)}</text>
  <text class="${word}-text" x="${LEFT + PLOT}" y="${top + 20}" text-anchor="end">${change}</text>${grid.join('')}
  <rect class="half" x="${fixed(x(from))}" y="${top + 34}" width="${fixed(x(to) - x(from))}" height="${PLOT_HEIGHT}"/>
  <path class="values" d="M${path}"/>
  <line class="${word}" x1="${fixed(x(from))}" y1="${fixed(y(line.at(from)))}" x2="${fixed(x(to))}" y2="${fixed(y(line.at(to)))}"/>
  ${times.join('')}`;
}

/** Rounds up to a round number. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return (
    [1, 1.5, 2, 3, 4, 5, 6, 8, 10]
      .map((step) => step * power)
      .find((step) => step >= value * 1.05) ?? value * 1.1
  );
}

function duration(seconds) {
  const whole = Math.round(seconds);
  if (whole < 120) return `${whole} s`;
  return whole % 60 === 0 || whole > 600
    ? `${Math.round(whole / 60)} min`
    : `${(whole / 60).toFixed(1)} min`;
}

const fixed = (value) => value.toFixed(1);
const escape = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
