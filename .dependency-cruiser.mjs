/**
 * The house's graph (docs/architecture.md): imports point one way, and a room is entered by its door.
 *
 * Each floor may import the floors below it. What is not on a floor's list is forbidden to it.
 */

const GROUND = ['common', 'config', 'metrics', 'tracing'];
const STORED = [...GROUND, 'database'];
const SEALED = [...STORED, 'secrets'];
const WORKING = [...STORED, 'event-log', 'sandboxes', 'sessions'];

/** Folder → the folders that it may import besides itself. */
const MAY_IMPORT = {
  common: [],
  config: ['common'],
  metrics: ['common', 'config'],
  tracing: ['common', 'config'],
  logging: ['common'],
  database: GROUND,
  secrets: STORED,
  auth: SEALED,
  console: [...GROUND, 'auth'],
  audit: STORED,
  idempotency: STORED,
  'event-log': STORED,
  gateway: ['common'],
  supervisor: ['common', 'gateway'],
  sandboxes: [...SEALED, 'event-log', 'gateway', 'supervisor'],
  usage: [...SEALED, 'gateway', 'sandboxes'],
  runtimes: [...GROUND, 'sandboxes'],
  environments: [...SEALED, 'idempotency', 'runtimes'],
  agents: [...SEALED, 'idempotency', 'runtimes', 'environments'],
  sessions: [
    ...SEALED,
    'idempotency',
    'event-log',
    'sandboxes',
    'runtimes',
    'environments',
    'agents',
    'usage',
  ],
  streaming: [...STORED, 'event-log', 'sessions'],
  files: [...SEALED, 'sandboxes', 'sessions', 'supervisor'],
  turns: [...WORKING, 'files', 'secrets', 'gateway', 'runtimes', 'environments', 'agents', 'usage'],
  maintenance: [...WORKING, 'files', 'idempotency', 'turns', 'usage'],
  operator: [...WORKING, 'auth', 'audit'],
  health: STORED,
  openapi: GROUND,
  cli: [...WORKING, 'files', 'secrets', 'runtimes', 'auth', 'audit', 'turns', 'streaming', 'usage'],
};

const floors = Object.entries(MAY_IMPORT).map(([folder, allowed]) => ({
  name: `${folder}-imports-only-what-lies-below`,
  severity: 'error',
  comment: `src/${folder} may import ${['itself', ...allowed].join(', ')}; see docs/architecture.md`,
  from: { path: `^src/${folder}/` },
  to: { path: '^src/', pathNot: `^src/(${[folder, ...allowed].join('|')})/` },
}));

export default {
  forbidden: [
    ...floors,
    {
      name: 'every-folder-has-its-floor',
      severity: 'error',
      comment: 'A new folder in src says in this file what it may import',
      from: { path: '^src/([^/]+)/', pathNot: `^src/(${Object.keys(MAY_IMPORT).join('|')})/` },
      to: {},
    },
    {
      name: 'nobody-imports-the-roots',
      severity: 'error',
      comment: 'What stands in src itself composes the rest',
      from: { path: '^src/[^/]+/' },
      to: { path: '^src/[^/]+\\.ts$' },
    },
    {
      name: 'a-driver-is-known-to-its-module-only',
      severity: 'error',
      comment: 'Drivers are reached through the port; only sandboxes.module knows them by name',
      from: {
        path: '^src/',
        pathNot: ['^src/sandboxes/driver/([^/]+)/', '^src/sandboxes/sandboxes\\.module\\.ts$'],
      },
      to: { path: '^src/sandboxes/driver/[^/]+/' },
    },
    {
      name: 'sandboxes-have-one-owner',
      severity: 'error',
      comment:
        'Only sandboxes/lifecycle changes the table; sessions and turns call session-sandboxes.ts',
      from: { path: '^src/', pathNot: '^src/sandboxes/lifecycle/' },
      to: { path: '^src/sandboxes/lifecycle/sandboxes\\.repository\\.ts$' },
    },
    {
      name: 'drivers-do-not-know-each-other',
      severity: 'error',
      from: { path: '^src/sandboxes/driver/([^/]+)/' },
      to: { path: '^src/sandboxes/driver/[^/]+/', pathNot: '^src/sandboxes/driver/$1/' },
    },
    {
      name: 'a-runtime-is-known-to-its-registry-only',
      severity: 'error',
      comment: 'Runtimes are reached through the catalogue; only their registry knows them by name',
      from: { path: '^src/', pathNot: ['^src/runtimes/registry\\.ts$', '\\.spec\\.ts$'] },
      to: { path: '^src/runtimes/[^/]+\\.runtime\\.ts$' },
    },
    {
      name: 'entities-stay-in-their-module',
      severity: 'error',
      comment: 'Others get DTOs and plain values',
      from: { path: '^src/([^/]+)/' },
      to: { path: '^src/[^/]+/entities/', pathNot: '^src/$1/' },
    },
    {
      name: 'no-cycles',
      severity: 'error',
      from: {},
      to: { circular: true },
    },
    {
      name: 'the-service-does-not-import-tests',
      severity: 'error',
      from: { path: '^(src|migrations)/', pathNot: '\\.spec\\.ts$' },
      to: { path: '^(test|bench|scripts)/|\\.spec\\.ts$' },
    },
    {
      name: 'migrations-stand-alone',
      severity: 'error',
      comment: 'What a migration does must not change with the code',
      from: { path: '^migrations/' },
      to: { path: '^src/' },
    },
    {
      name: 'no-development-packages-in-the-service',
      severity: 'error',
      from: { path: '^(src|migrations)/', pathNot: '\\.spec\\.ts$' },
      to: {
        dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown'],
        dependencyTypesNot: ['type-only'],
      },
    },
    {
      name: 'everything-resolves',
      severity: 'error',
      from: {},
      to: { couldNotResolve: true },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsConfig: { fileName: 'tsconfig.json' },
    tsPreCompilationDeps: true,
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'node', 'default', 'types'],
    },
  },
};
