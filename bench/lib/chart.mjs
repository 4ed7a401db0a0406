import { number } from './report.mjs';

const ROW = 26;
const HEADING = 34;
const TOP = 104;
const LABEL = 330;
const PLOT = 430;
const RIGHT = 210;
const WIDTH = LABEL + PLOT + RIGHT;
const STEPS = [1, 2, 5];
const NARROWEST = 4;

/** Rows grouped by topic, in the order in which readers usually ask. */
const TOPICS = {
  Live: ['live', 'fanout', 'streams'],
  Replay: ['replay', 'memory'],
  'Running agents': ['start', 'turns', 'ingest'],
  API: ['api', 'lists', 'growth'],
  'Memory and disk': ['idle', 'paused', 'purge'],
};

/**
 * Draws each figure relative to its goal on a logarithmic axis: right of the line is better than the goal, by the
 * factor on the axis. The thin line shows the range of the rounds.
 * @param judged see `judge` in report.mjs
 */
export function toChart(judged, description) {
  const lines = Object.entries(TOPICS).flatMap(([topic, rows]) => {
    const own = rows.flatMap((row) => judged.filter((one) => one.row === row));
    return own.length > 0 ? [{ topic }, ...own] : [];
  });
  const measured = judged.filter(({ missing }) => !missing);
  const axis = makeAxis(measured);
  let y = TOP;
  const drawn = lines.map((line) => {
    const at = y;
    y += line.topic ? HEADING : ROW;
    return line.topic ? heading(line.topic, at) : figure(line, at, axis);
  });
  const bottom = y + 6;
  const height = bottom + 50;
  const met = measured.filter((one) => one.met).length;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="${met} of ${measured.length} goals reached">
${STYLE}
  <text class="title" x="20" y="32">${met} of ${measured.length} goals reached</text>
  <text class="note" x="20" y="54">${escape(description)}</text>
  <rect class="short" x="${LABEL}" y="${TOP}" width="${fixed(axis.goal - LABEL)}" height="${bottom - TOP}"/>
  <rect class="better" x="${fixed(axis.goal)}" y="${TOP}" width="${fixed(LABEL + PLOT - axis.goal)}" height="${bottom - TOP}"/>
  <text class="side" x="${fixed(axis.goal - 14)}" y="${TOP - 28}" text-anchor="end">← short of the goal</text>
  <text class="side" x="${fixed(axis.goal + 14)}" y="${TOP - 28}">better than the goal →</text>
${grid(axis, bottom)}${drawn.join('')}
  <g transform="translate(20 ${height - 18})">
    <circle class="met" cx="6" cy="-4" r="6"/><text class="note" x="18" y="0">reached</text>
    <path class="missed" d="M92 -11l7 7-7 7-7-7z"/><text class="note" x="106" y="0">not reached</text>
    <path class="rounds" d="M190 -4h26M190 -8v8M216 -8v8"/><text class="note" x="224" y="0">range of the rounds; the mark is the median</text>
  </g>
</svg>
`;
}

/** The range of the axis, which includes all figures and the goal. */
function makeAxis(measured) {
  const all = measured.flatMap((one) =>
    [one.median, one.min, one.max].map((value) => Math.log10(headroom(one, value))),
  );
  const low = Math.min(-0.35, ...all) - 0.08;
  const high = Math.max(0.35, ...all) + 0.08;
  const x = (decades) => LABEL + ((decades - low) / (high - low)) * PLOT;
  return { x, low, high, goal: x(0), decade: PLOT / (high - low) };
}

/** By what factor a figure is better than its goal; below one, it misses the goal. */
const headroom = (one, value) =>
  one.atMost === undefined ? value / one.goal : one.goal / Math.max(value, one.goal / 1000);

function grid({ x, low, high, decade }, bottom) {
  const marks = [];
  for (let power = Math.floor(low); power <= high; power += 1)
    for (const step of decade > 130 ? STEPS : [1]) marks.push(power + Math.log10(step));
  return marks
    .filter((at) => at >= low && at <= high)
    .map((at) => {
      const times = 10 ** Math.abs(at);
      const goal = Math.abs(at) < 1e-9;
      const text = goal ? 'goal' : `${at < 0 ? '1/' : ''}${number(times)}${at < 0 ? '' : ' ×'}`;
      return `  <line class="${goal ? 'goal' : 'grid'}" x1="${fixed(x(at))}" x2="${fixed(x(at))}" y1="${TOP - 6}" y2="${bottom}"/>
  <text class="tick${goal ? ' strong' : ''}" x="${fixed(x(at))}" y="${TOP - 11}">${text}</text>`;
    })
    .join('\n');
}

const heading = (topic, y) => `
  <text class="topic" x="20" y="${y + 25}">${topic}</text>`;

function figure(one, y, { x, goal }) {
  const middle = y + ROW / 2;
  const unit = one.against ? ' ×' : '';
  const asked = `${one.atMost === undefined ? '≥' : '≤'} ${number(one.goal)}${unit}`;
  const label = `
  <text class="label" x="${LABEL - 18}" y="${middle + 4}">${escape(one.label)}</text>
  <text class="asked" x="${WIDTH - 20}" y="${middle + 4}">goal ${asked}</text>`;
  if (one.missing)
    return `${label}
  <text class="note" x="${LABEL + PLOT + 20}" y="${middle + 4}">not measured</text>`;
  const at = (value) => x(Math.log10(headroom(one, value)));
  const end = at(one.median);
  const [low, high] = [at(one.min), at(one.max)].toSorted((a, b) => a - b);
  const kind = one.met ? 'met' : 'missed';
  const mark = one.met
    ? `<circle class="met" cx="${fixed(end)}" cy="${middle}" r="6"/>`
    : `<path class="missed" d="M${fixed(end)} ${middle - 7}l7 7-7 7-7-7z"/>`;
  const rounds =
    high - low < NARROWEST
      ? ''
      : `<path class="rounds" d="M${fixed(low)} ${middle}H${fixed(high)}M${fixed(low)} ${middle - 4}v8M${fixed(high)} ${middle - 4}v8"/>`;
  return `${label}
  <line class="stem ${kind}-stem" x1="${fixed(goal)}" x2="${fixed(end)}" y1="${middle}" y2="${middle}"/>${rounds}${mark}
  <text class="value ${kind}-text" x="${LABEL + PLOT + 20}" y="${middle + 4}">${number(one.median)}${unit}</text>`;
}

const STYLE = `<style>
  svg { background: #fff; font: 13px system-ui, 'DejaVu Sans', sans-serif; }
  text { fill: #1c2530; } .title { font-size: 20px; font-weight: 600; } .topic { font-size: 14px; font-weight: 600; }
  .label, .asked { text-anchor: end; } .note, .asked, .tick, .side { fill: #5d6875; font-size: 12px; } .tick { text-anchor: middle; }
  .tick.strong { fill: #1c2530; font-weight: 600; } .value { font-weight: 600; }
  .short { fill: #cf3f52; opacity: .045; } .better { fill: #1d8a5f; opacity: .055; }
  .grid { stroke: #1c2530; opacity: .1; } .goal { stroke: #1c2530; stroke-width: 1.5; }
  .met { fill: #1d8a5f; } .missed { fill: #cf3f52; } .met-text { fill: #176f4c; } .missed-text { fill: #b42f42; }
  .stem { stroke-width: 5; stroke-linecap: round; opacity: .4; } .met-stem { stroke: #1d8a5f; } .missed-stem { stroke: #cf3f52; }
  .rounds { stroke: #1c2530; fill: none; opacity: .55; }
  @media (prefers-color-scheme: dark) {
    svg { background: #14181d; } text, .tick.strong { fill: #e8ecf0; } .note, .asked, .tick, .side { fill: #9aa6b2; }
    .grid, .goal, .rounds { stroke: #e8ecf0; } .short, .better { opacity: .1; }
    .met { fill: #43b788; } .missed { fill: #ef6b7b; } .met-text { fill: #5cc99c; } .missed-text { fill: #f58592; }
    .met-stem { stroke: #43b788; } .missed-stem { stroke: #ef6b7b; }
  }
</style>`;

const fixed = (value) => value.toFixed(1);
const escape = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
