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
 * The suites of which a driver for sandboxes is a part. That of warm sandboxes, which takes minutes on an engine, is run by
 * hand: SANDBOX_DRIVER=docker npm run jest -- test/e2e/warm-pool --selectProjects integration
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

export default {
  coverageProvider: 'v8',
  maxWorkers: 2,
  projects: [
    { ...base, displayName: 'unit', testMatch: ['<rootDir>/src/**/*.spec.ts'] },
    {
      ...base,
      ...withService,
      displayName: 'integration',
      testMatch: ['<rootDir>/test/**/*.spec.ts'],
      testPathIgnorePatterns: [
        '/node_modules/',
        '<rootDir>/test/runtimes/',
        '<rootDir>/test/integration/sandboxes/docker-',
      ],
    },
    // An engine does one thing after the other, and takes its time for each.
    {
      ...base,
      ...withService,
      displayName: 'docker',
      testMatch: ['<rootDir>/test/integration/sandboxes/docker-*.spec.ts'],
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
    // The real agent programs, hundreds of megabytes each: see npm run test:runtimes.
    {
      ...base,
      ...withService,
      displayName: 'runtimes',
      testMatch: ['<rootDir>/test/runtimes/**/*.spec.ts'],
    },
  ],
};
