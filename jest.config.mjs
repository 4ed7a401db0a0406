/** Unit tests stand beside the code; the suites in test/ use the built service, real sockets and a real database. */
const base = {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
  transform: {
    '^.+\\.ts$': [
      '@swc/jest',
      {
        jsc: {
          parser: { syntax: 'typescript', decorators: true },
          transform: {
            legacyDecorator: true,
            decoratorMetadata: true,
            useDefineForClassFields: false,
          },
          target: 'es2024',
          keepClassNames: true,
        },
        module: { type: 'es6' },
        sourceMaps: 'inline',
      },
    ],
  },
};

/** For tests of the built service with a real database. */
const withService = {
  globalSetup: '<rootDir>/test/support/global-setup.mjs',
  globalTeardown: '<rootDir>/test/support/global-teardown.mjs',
  testEnvironment: '<rootDir>/test/support/leak-check-environment.mjs',
  setupFilesAfterEnv: ['<rootDir>/test/support/setup.ts'],
};

const spec = (path) => `<rootDir>/test/${path}.spec.ts`;

/**
 * `npm test` runs these on the local driver: the interface, provisioning, streams, recovery and isolation. Everything
 * that belongs to no other project is in the project `local`, so that no suite is forgotten.
 */
const CORE = [
  ...[
    'agents',
    'auth',
    'auth-routes',
    'environments',
    'errors',
    'idempotency',
    'lists',
    'openapi',
    'provisioning',
    'recovery',
    'repositories',
    'secrets',
    'session-files',
    'session-limit',
    'session-output',
    'sessions-states',
    'stored-text',
    'streams',
    'usage',
  ].map((name) => spec(`e2e/${name}`)),
  ...[
    'entities',
    'fair-claims',
    'fencing',
    'gateway/broker',
    'openapi/documents',
    'relay/relay',
    'sandbox-states',
    'turn-changes',
  ].map((name) => spec(`integration/${name}`)),
  ...['confine', 'limits', 'local-driver', 'probes'].map((name) =>
    spec(`integration/sandboxes/${name}`),
  ),
];

/** One session from POST to exit on each other driver and surface. */
const SMOKE = [spec('smoke/*'), spec('console/smoke')];

const BROWSER = [spec('console/**/*'), spec('e2e/console'), spec('integration/console-size')];

/**
 * The end-to-end suites that concern sandboxes run in containers as well. Any other can be run there by hand:
 * SANDBOX_DRIVER=docker npm run jest -- test/e2e/warm-pool --selectProjects local
 */
const ON_DOCKER = [
  'cli-follow',
  'disk-limit',
  'provisioning',
  'recovery',
  'repositories',
  'secrets',
  'session-limit',
  'session-output',
  'sessions-states',
  'streams',
].map((name) => spec(`e2e/${name}`));

/** And in sprites. Those that need other hosts cannot: the fake's machines have no internet. */
const ON_SPRITES = [
  'secrets',
  'session-output',
  'sessions-states',
  'streams',
  'cli-follow',
  'recovery',
  'repositories',
  'session-limit',
].map((name) => spec(`e2e/${name}`));

/** A project of suites that use the built service with a real database. */
const project = (displayName, testMatch, more = {}) => ({
  ...base,
  ...withService,
  displayName,
  testMatch,
  ...more,
});

/** The same, with what makes its services use another driver. */
const onDriver = (driver, displayName, testMatch) =>
  project(displayName, testMatch, {
    setupFilesAfterEnv: [
      ...withService.setupFilesAfterEnv,
      `<rootDir>/test/support/on-${driver}.ts`,
    ],
  });

const without = (...patterns) => ({ testPathIgnorePatterns: ['/node_modules/', ...patterns] });
/** As a part of a regular expression for paths. */
const asPattern = (path) =>
  `${path.replaceAll(/\*\*\/\*|\*/g, (stars) => (stars === '*' ? '[^/]*' : '.*'))}$`;

const SPRITES = [spec('integration/sprites/*')];
const DOCKER = [spec('integration/sandboxes/docker-*')];
const KUBERNETES = [spec('kubernetes/**/*')];
/** Software from the registries of this machine: packages, and the agent programs. */
const SPRITES_SOFTWARE = [spec('sprites/*')];
const RUNTIMES = [spec('runtimes/**/*')];
const SDK = [spec('sdk/*')];
const FAULTS = [spec('faults/*')];
const HOSTILE = [spec('hostile/*')];

const ELSEWHERE = [
  ...[CORE, SMOKE, BROWSER, SPRITES, DOCKER, KUBERNETES, SPRITES_SOFTWARE, RUNTIMES],
  ...[SDK, FAULTS, HOSTILE],
].flat();

/** The stages of scripts/lib/test-stages.mjs say which of these run when. */
export default {
  coverageProvider: 'v8',
  testSequencer: '<rootDir>/test/support/longest-first.mjs',
  maxWorkers: 2,
  projects: [
    {
      ...base,
      displayName: 'unit',
      testMatch: ['<rootDir>/src/**/*.spec.ts'],
      // A limit for tests that hang, the same for all: no test is to fail because the machine is busy.
      setupFilesAfterEnv: withService.setupFilesAfterEnv,
    },
    project('core', CORE),
    project('smoke', SMOKE),
    project('local', [spec('**/*')], without(...ELSEWHERE.map(asPattern))),
    project('sdk', SDK),
    project('sprites', SPRITES),
    onDriver('sprites', 'sprites-e2e', ON_SPRITES),
    onDriver('sprites', 'sprites-software', SPRITES_SOFTWARE),
    project('browser', BROWSER, without(asPattern(spec('console/smoke')))),
    project('faults', FAULTS),
    project('hostile', HOSTILE),
    project('runtimes', RUNTIMES),
    project('docker', DOCKER),
    onDriver('docker', 'docker-e2e', ON_DOCKER),
    project('kubernetes', KUBERNETES),
  ],
};
