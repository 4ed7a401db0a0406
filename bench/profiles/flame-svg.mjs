const WIDTH = 1200;
const ROW = 18;
const TOP = 70;
const MARGIN = 10;
/** The minimum width of a box; narrower ones would look like lines. */
const NARROWEST = 1.2;
/** The maximum depth. Deeper calls are mostly inside frameworks. */
const DEEPEST = 36;
const CHARACTER = 6.3;

const KINDS = {
  own: 'this project',
  library: 'packages',
  node: 'Node.js',
  native: 'native code',
  gc: 'garbage collection',
};

/** Draws a call tree as an SVG: every box is as wide as its share of the time, with its callees below it. */
export function toFlameSvg({ root, idleMs }, title) {
  const scale = (WIDTH - 2 * MARGIN) / root.total;
  const boxes = [];
  let depth = 0;
  const draw = (node, x, level) => {
    depth = Math.max(depth, level);
    let at = x;
    for (const child of node.children) {
      const width = child.total * scale;
      if (width >= NARROWEST && level < DEEPEST) {
        boxes.push(box(child, at, level, width, root.total));
        draw(child, at, level + 1);
      }
      at += width;
    }
  };
  draw(root, MARGIN, 0);
  const height = TOP + depth * ROW + MARGIN;
  const all = root.total + idleMs;
  const note = `${seconds(root.total)} of CPU time, every box as wide as its share; ${percent(idleMs / all)} of ${seconds(all)} idle, left out`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="${escape(title)}">
<style>
  svg { background: #fff; font: 11px ui-monospace, 'DejaVu Sans Mono', monospace; }
  text { fill: #1f2933; } .note { fill: #5d6875; } .title { font-size: 15px; font-weight: 600; }
  rect { stroke: #fff; stroke-width: .6; } rect:hover { stroke: #1f2933; }
  .own { fill: #f4a259; } .library { fill: #9ec5e8; } .node { fill: #c9d1d9; } .native { fill: #d9d2e9; } .gc { fill: #e58f8f; }
  @media (prefers-color-scheme: dark) {
    svg { background: #14181d; } .title { fill: #e8ecf0; } .note { fill: #9aa6b2; } rect { stroke: #14181d; }
    .own { fill: #e0924a; } .library { fill: #7faad1; } .node { fill: #98a3ae; } .native { fill: #a89bc9; } .gc { fill: #cf7373; }
  }
</style>
<text class="title" x="${MARGIN}" y="24">${escape(title)}</text>
<text class="note" x="${MARGIN}" y="42">${note}</text>
${legend()}
${boxes.join('\n')}
</svg>
`;
}

function box(node, x, level, width, total) {
  const y = TOP + level * ROW;
  const room = Math.floor((width - 6) / CHARACTER);
  const text =
    room < 3
      ? ''
      : `<text x="${fixed(x + 3)}" y="${y + 13}">${escape(shorten(node.label, room))}</text>`;
  const what = `${node.label}: ${percent(node.total / total)} (${Math.round(node.total)} ms), itself ${percent(node.self / total)}`;
  return `<g><title>${escape(what)}</title><rect class="${node.kind}" x="${fixed(x)}" y="${y}" width="${fixed(width)}" height="${ROW - 1}" rx="2"/>${text}</g>`;
}

function legend() {
  let x = MARGIN;
  return Object.entries(KINDS)
    .map(([kind, text]) => {
      const at = x;
      x += 30 + text.length * CHARACTER;
      return `<rect class="${kind}" x="${fixed(at)}" y="50" width="11" height="11" rx="2"/><text class="note" x="${fixed(at + 16)}" y="60">${text}</text>`;
    })
    .join('');
}

const shorten = (text, room) => (text.length <= room ? text : `${text.slice(0, room - 1)}…`);
const fixed = (value) => value.toFixed(1);
const percent = (share) => `${(share * 100).toFixed(1)} %`;
const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
const escape = (text) =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
