import { availableParallelism } from 'node:os';
import { join, resolve } from 'node:path';
import { ConfigError, type Environment, EnvironmentReader } from './parse.js';
import { readTracing, type TracingConfig } from './tracing-config.js';

/** Is this process the only one on its database? An embedded one serves no other. */
export const isSoleProcess = (config: AppConfig): boolean => config.databaseUrl === undefined;

/** How one model provider is reached. */
export interface ProviderAccess {
  /** Handed to the runtime in the sandbox; a secret. */
  apiKey?: string;
  /** A gateway in place of the provider's own address. */
  baseUrl?: string;
}

/**
 * Everything that the environment configures, validated once at the start. Durations are seconds, sizes bytes.
 * An injectable class so that it can be asked for by type; build it with {@link loadConfig}.
 */
export class AppConfig {
  readonly port!: number;
  readonly host!: string;
  /** `undefined` means: run an own PostgreSQL under {@link dataDir}. */
  readonly databaseUrl?: string;
  readonly databasePoolSize!: number;
  /** Absolute. */
  readonly dataDir!: string;
  /** Absolute; what can be made again and may be shared by installations on one machine. */
  readonly cacheDir!: string;
  readonly role!: 'all' | 'api' | 'worker';
  /** `''` or `/something`, without a trailing slash. */
  readonly apiPrefix!: string;
  /** `''` or an absolute address without a trailing slash. */
  readonly publicUrl!: string;
  readonly sandbox!: {
    driver: 'local' | 'docker' | 'kubernetes' | 'sprites';
    isolation: 'strict' | 'degraded';
    memoryBytes: number;
    diskBytes: number;
    processes: number;
    idleTtlSeconds: number;
    /** How many sandboxes a worker keeps ready. */
    warmPool: number;
    /** Only read by the driver `docker`. */
    docker: {
      /** The engine's address, as Docker's own client takes it. */
      host: string;
      /** The folder of the certificates with which the engine is spoken to over TLS. */
      certPath?: string;
      image: string;
      runtime?: string;
      cpus?: number;
      egressNetwork?: string;
      cachedImages: number;
      cachedImageTtlSeconds: number;
    };
  };
  readonly sessionLimit!: number;
  readonly workerConcurrency!: number;
  readonly leaseSeconds!: number;
  /** After this long without a worker, the sandboxes of a host and what runs in them are given up. */
  readonly hostLostSeconds!: number;
  readonly heartbeatSeconds!: number;
  readonly staleAfterSeconds!: number;
  readonly logRetentionDays!: number;
  readonly outputLimitBytes!: number;
  readonly bodyLimitBytes!: number;
  /** Raw `ENCRYPTION_KEYS`; parsed by the key ring. */
  readonly encryptionKeys?: string;
  readonly providers!: {
    anthropic: ProviderAccess;
    openai: ProviderAccess;
    google: ProviderAccess;
  };
  readonly logLevel!: 'fatal' | 'error' | 'warn' | 'log' | 'debug' | 'verbose';
  /** `undefined`: by whether the output is a terminal. */
  readonly logFormat?: 'json' | 'pretty';
  readonly metricsPort?: number;
  /** `undefined`: no traces. */
  readonly tracing?: TracingConfig;
}

const DRIVERS = ['local', 'docker', 'kubernetes', 'sprites'] as const;
const LOG_LEVELS = ['fatal', 'error', 'warn', 'log', 'info', 'debug', 'verbose', 'trace'] as const;

/**
 * Reads the configuration.
 * @throws ConfigError one line: which variable, and what it takes.
 */
export function loadConfig(env: Environment): AppConfig {
  const read = new EnvironmentReader(env);
  const dataDir = resolve(read.text('DATA_DIR') ?? '.data');
  const level = read.oneOf('LOG_LEVEL', 'log', LOG_LEVELS);
  const metricsPort = read.text('METRICS_PORT');
  const config: AppConfig = {
    port: read.integer('PORT', 8080, { min: 0, max: 65_535 }),
    host: read.text('HOST') ?? '127.0.0.1',
    databaseUrl: read.url('DATABASE_URL', ['postgres', 'postgresql']),
    databasePoolSize: read.integer('DATABASE_POOL_SIZE', 12, { min: 4, max: 500 }),
    dataDir,
    cacheDir: resolve(read.text('CACHE_DIR') ?? join(dataDir, 'cache')),
    role: read.oneOf('APP_ROLE', 'all', ['all', 'api', 'worker']),
    apiPrefix: readPrefix(read),
    publicUrl: (read.url('PUBLIC_URL', ['http', 'https']) ?? '').replace(/\/+$/, ''),
    sandbox: {
      driver: read.oneOf('SANDBOX_DRIVER', 'local', DRIVERS),
      isolation: read.oneOf('SANDBOX_ISOLATION', 'strict', ['strict', 'degraded']),
      memoryBytes: read.bytes('SANDBOX_MEMORY', 2 * 2 ** 30),
      diskBytes: read.bytes('SANDBOX_DISK', 4 * 2 ** 30),
      processes: read.integer('SANDBOX_PROCESSES', 512, { min: 8, max: 100_000 }),
      idleTtlSeconds: read.duration('SANDBOX_IDLE_TTL', 86_400),
      warmPool: read.integer('WARM_POOL', 0, { min: 0, max: 1_000 }),
      docker: readDocker(read),
    },
    sessionLimit: read.integer('SESSION_LIMIT', 10, { min: 0, max: 1_000_000 }),
    workerConcurrency: read.integer('WORKER_CONCURRENCY', Math.max(8, availableParallelism() * 4), {
      min: 1,
      max: 10_000,
    }),
    leaseSeconds: read.seconds('LEASE_SECONDS', 15, { min: 0.5, max: 3600 }),
    hostLostSeconds: read.seconds('HOST_LOST_SECONDS', 300, { min: 1, max: 31_536_000 }),
    heartbeatSeconds: read.seconds('HEARTBEAT_SECONDS', 15, { min: 0.05, max: 3600 }),
    staleAfterSeconds: read.seconds('STALE_AFTER_SECONDS', 600, { min: 0.1, max: 86_400 }),
    logRetentionDays: read.integer('LOG_RETENTION_DAYS', 30, { min: 1, max: 36_500 }),
    outputLimitBytes: read.bytes('OUTPUT_LIMIT', 256 * 2 ** 20),
    bodyLimitBytes: read.bytes('BODY_LIMIT', 4 * 2 ** 20),
    encryptionKeys: read.text('ENCRYPTION_KEYS'),
    providers: {
      anthropic: readProvider(read, 'ANTHROPIC'),
      openai: readProvider(read, 'OPENAI'),
      google: readProvider(read, 'GEMINI'),
    },
    logLevel: level === 'info' ? 'log' : level === 'trace' ? 'verbose' : level,
    logFormat:
      read.text('LOG_FORMAT') === undefined
        ? undefined
        : read.oneOf('LOG_FORMAT', 'json', ['json', 'pretty']),
    tracing: readTracing(read),
    metricsPort:
      metricsPort === undefined
        ? undefined
        : read.integer('METRICS_PORT', 0, { min: 0, max: 65_535 }),
  };
  if (config.role !== 'all' && config.databaseUrl === undefined) {
    throw new ConfigError(
      'APP_ROLE',
      `"${config.role}" needs DATABASE_URL: the embedded PostgreSQL serves one process`,
    );
  }
  const { driver, isolation, warmPool } = config.sandbox;
  if (warmPool > 0 && driver === 'local' && isolation === 'degraded') {
    throw new ConfigError(
      'WARM_POOL',
      'needs SANDBOX_ISOLATION=strict: a sandbox that waits must have no network',
    );
  }
  return Object.freeze(Object.assign(new AppConfig(), config));
}

function readPrefix(read: EnvironmentReader): string {
  const prefix = read.text('API_PREFIX');
  if (prefix === undefined) return '';
  const trimmed = prefix.replace(/^\/+|\/+$/g, '');
  if (!/^[A-Za-z0-9._~-]+(\/[A-Za-z0-9._~-]+)*$/.test(trimmed)) {
    throw new ConfigError('API_PREFIX', `must be a path such as /v1, not "${prefix}"`);
  }
  return `/${trimmed}`;
}

function readDocker(read: EnvironmentReader): AppConfig['sandbox']['docker'] {
  const host = read.text('DOCKER_HOST') ?? 'unix:///var/run/docker.sock';
  if (!/^(unix:\/\/\/|(tcp|https?):\/\/)./.test(host)) {
    throw new ConfigError('DOCKER_HOST', 'must start with unix:///, tcp://, http:// or https://');
  }
  const certPath = read.text('DOCKER_CERT_PATH');
  const tls = read.text('DOCKER_TLS_VERIFY');
  if (tls !== undefined && certPath === undefined) {
    throw new ConfigError(
      'DOCKER_TLS_VERIFY',
      'needs DOCKER_CERT_PATH, the folder of the certificates',
    );
  }
  return {
    host,
    ...(certPath !== undefined && !host.startsWith('unix:') && { certPath: resolve(certPath) }),
    image: read.text('SANDBOX_IMAGE') ?? 'agent-session-sandbox:latest',
    runtime: read.text('SANDBOX_RUNTIME'),
    cpus: read.fraction('SANDBOX_CPUS', { min: 0.01, max: 1024 }),
    egressNetwork: read.text('SANDBOX_EGRESS_NETWORK'),
    cachedImages: read.integer('SANDBOX_CACHED_IMAGES', 20, { min: 0, max: 10_000 }),
    cachedImageTtlSeconds: read.duration('SANDBOX_CACHED_IMAGE_TTL', 7 * 86_400),
  };
}

function readProvider(read: EnvironmentReader, name: string): ProviderAccess {
  return {
    apiKey: read.text(`${name}_API_KEY`),
    baseUrl: read.url(`${name}_BASE_URL`, ['http', 'https'])?.replace(/\/+$/, ''),
  };
}
