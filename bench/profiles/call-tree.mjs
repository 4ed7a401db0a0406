import { LOADING, describeFrame } from './frames.mjs';

const MICROSECONDS = 1000;
const SECOND_MS = 1000;

/**
 * Merges the calls of a CPU profile into one tree, with callers above the functions that they call.
 * @param profile as `node --cpu-prof` writes it
 * @param window the range of seconds to include; all if absent
 * @returns `root`: nodes with `label`, `kind`, `group`, `self` and `total` milliseconds and `children`; `idleMs`, which
 *   the tree does not include; and `busy`, the non-idle share of each second of the whole profile.
 */
export function readCallTree(profile, { from = 0, to = Infinity } = {}) {
  const idle = new Set(
    profile.nodes
      .filter((node) => describeFrame(node.callFrame).kind === 'idle')
      .map(({ id }) => id),
  );
  const times = new Map();
  const seconds = [];
  let clock = 0;
  profile.samples.forEach((id, at) => {
    const ms = profile.timeDeltas[at] / MICROSECONDS;
    clock += ms;
    const second = Math.max(0, Math.floor(clock / SECOND_MS));
    const [busyMs, allMs] = seconds[second] ?? [0, 0];
    seconds[second] = [busyMs + (idle.has(id) ? 0 : ms), allMs + ms];
    if (clock >= from * SECOND_MS && clock < to * SECOND_MS)
      times.set(id, (times.get(id) ?? 0) + ms);
  });
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const root = makeNode({ label: 'all', kind: 'root', group: '' });
  let idleMs = 0;

  const add = (node, parent) => {
    const frame = describeFrame(node.callFrame);
    const ms = times.get(node.id) ?? 0;
    if (frame.kind === 'idle') idleMs += ms;
    if (frame.kind === 'idle') return;
    const inside = parent.label === LOADING || frame.kind === 'root';
    const own = inside ? parent : childOf(parent, frame);
    own.self += ms;
    for (const id of node.children ?? []) add(nodes.get(id), own);
  };
  add(profile.nodes[0], root);
  sum(root);
  // Without samples there is no result.
  const busy = Array.from(seconds, (one) => (one ? one[0] / one[1] : 0));
  return { root, idleMs, busy };
}

const makeNode = (frame) => ({ ...frame, self: 0, total: 0, children: new Map() });

/** Merges all calls of a function by the same caller. Recursive calls become one box instead of a tower. */
function childOf(parent, frame) {
  if (parent.label === frame.label) return parent;
  let child = parent.children.get(frame.label);
  if (!child) parent.children.set(frame.label, (child = makeNode(frame)));
  return child;
}

function sum(node) {
  const children = [...node.children.values()];
  node.total = node.self + children.reduce((total, child) => total + sum(child), 0);
  node.children = children.toSorted((a, b) => b.total - a.total);
  return node.total;
}

/** Calls `visit` with every node and the labels above it. */
export function walk(node, visit, above = new Set()) {
  visit(node, above);
  const path = new Set(above).add(node.label);
  for (const child of node.children) walk(child, visit, path);
}
