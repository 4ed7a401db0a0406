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

/**
 * The suites that run on an engine as well. Any other can be run there by hand:
 * SANDBOX_DRIVER=docker npm run jest -- test/e2e/warm-pool --selectProjects integration
 */
const SANDBOX_SUITES = [
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
];

/** The suites that also run in sprites. Those that need other hosts cannot: the fake's machines have no internet. */
const SPRITES_SUITES = ['secrets', 'session-output', 'sessions-states', 'streams'];
/** Suites that take minutes in sprites, for `npm run test:sprites`. */
const LONG_SPRITES_SUITES = ['cli-follow', 'recovery', 'repositories', 'session-limit'];

const e2e = (name) => `<rootDir>/test/e2e/${name}.spec.ts`;

/** A project whose services run with SANDBOX_DRIVER=sprites, against a fake of the Sprites API. */
const onSprites = (displayName, testMatch) => ({
  ...base,
  ...withService,
  displayName,
  testMatch,
  setupFilesAfterEnv: [...withService.setupFilesAfterEnv, '<rootDir>/test/support/on-sprites.ts'],
});

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
    {
      ...base,
      ...withService,
      displayName: 'integration',
      testMatch: ['<rootDir>/test/**/*.spec.ts'],
      testPathIgnorePatterns: [
        '/node_modules/',
        '<rootDir>/test/runtimes/',
        '<rootDir>/test/console/',
        '<rootDir>/test/kubernetes/',
        '<rootDir>/test/sprites/',
        '<rootDir>/test/integration/sandboxes/docker-',
        '<rootDir>/test/integration/sprites/',
      ],
    },
    // All machines of the fake count the processes of the same kernel user, so only one suite at a time may fill them.
    {
      ...base,
      ...withService,
      displayName: 'sprites',
      testMatch: ['<rootDir>/test/integration/sprites/*.spec.ts'],
    },
    // An engine does one thing after the other, and takes its time for each.
    {
      ...base,
      ...withService,
      displayName: 'docker',
      testMatch: ['<rootDir>/test/integration/sandboxes/docker-*.spec.ts'],
    },
    // Pods of the cluster of KUBECONFIG: see npm run test:kubernetes.
    {
      ...base,
      ...withService,
      displayName: 'kubernetes',
      testMatch: ['<rootDir>/test/kubernetes/**/*.spec.ts'],
    },
    // Once more what concerns sandboxes from end to end, in containers.
    {
      ...base,
      ...withService,
      displayName: 'docker-e2e',
      testMatch: SANDBOX_SUITES.map((name) => `<rootDir>/test/e2e/${name}.spec.ts`),
      setupFilesAfterEnv: [
        ...withService.setupFilesAfterEnv,
        '<rootDir>/test/support/on-docker.ts',
      ],
    },
    // And in sprites.
    onSprites('sprites-e2e', SPRITES_SUITES.map(e2e)),
    onSprites('sprites-e2e-long', LONG_SPRITES_SUITES.map(e2e)),
    // With software from the registries of this machine: packages, and the agent programs.
    onSprites('sprites-software', ['<rootDir>/test/sprites/*.spec.ts']),
    // A real browser before the service.
    {
      ...base,
      ...withService,
      displayName: 'console',
      testMatch: ['<rootDir>/test/console/**/*.spec.ts'],
    },
    // The real agent programs, hundreds of megabytes each: see npm run test:runtimes.
    {
      ...base,
      ...withService,
      displayName: 'runtimes',
      testMatch: ['<rootDir>/test/runtimes/**/*.spec.ts'],
    },
  ],
};
