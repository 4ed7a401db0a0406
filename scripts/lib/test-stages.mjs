/**
 * The stages of the tests, in the order in which they run: the cheapest first. `npm test` runs those that are `always`,
 * `npm run test:all` all of them, and `npm run test:NAME` one. Projects are those of jest.config.mjs.
 *
 * @typedef {object} Stage
 * @property {string} name
 * @property {boolean} [always] part of `npm test`
 * @property {string[]} [scripts] scripts of package.json instead of suites
 * @property {string[]} [projects] one after the other
 * @property {number} [workers] how many test files run at once; default: 2
 * @property {[program: string, debianPackage: string][]} [programs] installed by root where they are missing
 * @property {string[]} [pythonModules] the same, for Debian's Python
 * @property {boolean} [engine] needs a Docker engine, which root gets one of its own for where none answers
 * @property {Record<string, string>} [env]
 */

const CHROMIUM = ['chromium', 'chromium'];
const ENGINE = [
  ['dockerd', 'docker.io'],
  ['iptables', 'iptables'],
];
const GIT = [
  ['git', 'git'],
  ['git-lfs', 'git-lfs'],
];

/** @type {Stage[]} */
export const STAGES = [
  {
    name: 'check',
    always: true,
    scripts: ['format', 'lint', 'types', 'boundaries', 'unused', 'openapi'].map(
      (name) => `check:${name}`,
    ),
  },
  { name: 'unit', always: true, projects: ['unit'] },
  // These mostly wait for processes, so that three fit on two cores.
  { name: 'core', always: true, projects: ['core'], workers: 3 },
  { name: 'smoke', always: true, projects: ['smoke'], engine: true },
  {
    name: 'sdk',
    projects: ['sdk'],
    programs: [['javac', 'default-jdk-headless'], ['python3', 'python3'], ['curl', 'curl'], ...GIT],
    pythonModules: ['certifi', 'dateutil', 'six', 'urllib3'],
  },
  {
    name: 'sprites',
    // All machines of the fake count the processes of the same kernel user, so only one suite at a time may fill them.
    projects: ['sprites', 'sprites-e2e', 'sprites-software'],
    workers: 1,
  },
  { name: 'browser', projects: ['browser'], workers: 1, programs: [CHROMIUM, ...GIT] },
  { name: 'faults', projects: ['faults'] },
  { name: 'hostile', projects: ['hostile'], workers: 1 },
  // One agent program uses the whole machine.
  { name: 'runtimes', projects: ['runtimes'], workers: 1, env: { AGENT_CLI_TESTS: 'install' } },
  // An engine does one thing after the other.
  {
    name: 'docker',
    projects: ['docker', 'docker-e2e'],
    workers: 1,
    engine: true,
    programs: [...ENGINE, ...GIT],
  },
  { name: 'kubernetes', projects: ['kubernetes'], workers: 1 },
  {
    name: 'local',
    projects: ['local'],
    workers: 3,
    programs: [['nginx', 'nginx-light'], ['promtool', 'prometheus'], ['curl', 'curl'], ...GIT],
  },
];
