import { table } from '../lib/markdown.mjs';
import { walk } from './call-tree.mjs';

const ROWS = 25;

/** Summarises a profile as text: the functions with the most time of their own, and with the most total time. */
export function toSummary({ root, idleMs, busy }, title) {
  const itself = new Map();
  const groups = new Map();
  const within = new Map();
  const shares = { own: 0, library: 0, node: 0, native: 0, gc: 0 };
  walk(root, (node, above) => {
    if (node === root) return;
    shares[node.kind] += node.self;
    add(itself, node.label, node.self);
    add(groups, node.group, node.self);
    // Counts recursive calls once.
    if (node.kind === 'own' && !above.has(node.label)) add(within, node.label, node.total);
  });
  const all = root.total + idleMs;
  const part = (ms) => `${((ms * 100) / root.total).toFixed(1)} %`;
  const top = (sums) =>
    [...sums]
      .filter(([, ms]) => ms > 0)
      .toSorted(([, a], [, b]) => b - a)
      .slice(0, ROWS)
      .map(([name, ms]) => [`\`${name}\``, part(ms), String(Math.round(ms))]);
  return [
    `# ${title}`,
    '',
    `${(all / 1000).toFixed(1)} s, of which ${((idleMs * 100) / all).toFixed(1)} % idle. Of the rest: this project ${part(shares.own)},` +
      ` packages ${part(shares.library)}, Node.js ${part(shares.node)}, native code ${part(shares.native)}, garbage collection ${part(shares.gc)}.`,
    '',
    `Busy in each second of the whole run, %: ${busy.map((share) => Math.round(share * 100)).join(' ')}`,
    '',
    'Time in the function itself:',
    '',
    table(['Function', 'Share', 'ms'], top(itself)),
    '',
    'The same by file or package:',
    '',
    table(['Where', 'Share', 'ms'], top(groups)),
    '',
    "Time in the project's functions and all that they call (without what they wait for):",
    '',
    table(['Function', 'Share', 'ms'], top(within)),
    '',
  ].join('\n');
}

const add = (sums, key, ms) => sums.set(key, (sums.get(key) ?? 0) + ms);
