import { createRequire } from 'node:module';

// Jest's own sequencer; found from Jest, which brings it along.
const require = createRequire(import.meta.url);
const { default: Sequencer } = require(
  require.resolve('@jest/test-sequencer', { paths: [require.resolve('jest/package.json')] }),
);

/**
 * Suites that take minutes although their files are short. Jest takes long files for long suites where it has not
 * measured them yet, and would begin these last, with the other workers idle.
 */
const LONG = [
  'integration/sandboxes/local-driver',
  'hostile/hostile',
  'e2e/session-limit',
  'e2e/git-credentials',
  'faults/takeover',
  'faults/chaos',
  'integration/sandboxes/pipe-driver',
  'integration/bench',
  'integration/rootfs/rootfs',
  'sdk/classic-clients',
];

const rankOf = ({ path }) => {
  const at = LONG.findIndex((name) => path.endsWith(`/test/${name}.spec.ts`));
  return at === -1 ? LONG.length : at;
};

/** Begins with the suites that are known to be long; the others follow in Jest's order. */
export default class LongestFirst extends Sequencer {
  sort(tests) {
    return [...super.sort(tests)].sort((one, other) => rankOf(one) - rankOf(other));
  }
}
