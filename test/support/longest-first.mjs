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
  'integration/sandboxes/hostile-files',
  'integration/sandboxes/local-driver',
  'integration/embedded/installation',
  'e2e/failing-turns',
  'hostile/hostile',
  'e2e/recovery',
  'e2e/provisioning',
  'e2e/list-pages',
  'e2e/session-limit',
  'faults/takeover',
  'faults/chaos',
  'e2e/sandbox-room',
  'e2e/enterprise-network',
  'e2e/warm-pool',
  'integration/sandboxes/unknown-state',
  'integration/bench',
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
