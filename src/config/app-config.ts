import { availableParallelism } from 'node:os';
import { join, resolve } from 'node:path';
import { readDatabaseUrl } from './database-config.js';
import type { EgressNetwork } from '../common/egress-network.js';
import { type GatewayAddresses, readGateway, requireKeys } from './gateway-config.js';
import {
  type KubernetesConfig,
  readKubernetes,
  requireKubernetesGateway,
} from './kubernetes-config.js';
import { readNetwork } from './network-config.js';
import { readSprites, requireToken, type SpritesConfig } from './sprites-config.js';
import { ConfigError, type Environment, EnvironmentReader } from './parse.js';
import { readTracing, type TracingConfig } from './tracing-config.js';
import { readWorkerAddress, type WorkerAddress } from './worker-config.js';

/** Whether this process is the only one on its database. An embedded database serves only one process. */
export const isSoleProcess = (config: AppConfig): boolean => config.databaseUrl === undefined;

/** How to reach one model provider. */
export interface ProviderAccess {
  /** Passed to the runtime in the sandbox; a secret. */
  apiKey?: string;
  /** A gateway to use instead of the provider's own address. */
  baseUrl?: string;
}

/**
 * The configuration from the environment, validated once at startup. Durations are in seconds, sizes in bytes. A class
 * so that Nest can inject it by type; use {@link loadConfig} to create it.
 */
export class AppConfig {
  readonly port!: number;
  readonly host!: string;
  /** `undefined`: run an embedded PostgreSQL in {@link dataDir}. */
  readonly databaseUrl?: string;
  readonly databasePoolSize!: number;
  /** Absolute. */
  readonly dataDir!: string;
  /** Absolute. Holds files that can be created again; installations on the same machine may share it. */
  readonly cacheDir!: string;
  readonly role!: 'all' | 'api' | 'worker' | 'gateway';
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
    /** CPUs of one sandbox; may be a fraction. */
    cpus?: number;
    idleTtlSeconds: number;
    /** How many prepared sandboxes a worker keeps in its pool. */
    warmPool: number;
    /** How many sandboxes of one user are kept, unless the user has an individual limit; 0: no fixed limit. */
    perUser: number;
    /** How long the database must not have known a sandbox before the sandbox is destroyed as an orphan. */
    orphanGraceSeconds: number;
    /** Used by the driver `docker`; the image and the runtime by `kubernetes`, too. */
    docker: {
      /** The engine's address, in the format of Docker's own client. */
      host: string;
      /** The folder with the certificates for TLS connections to the engine. */
      certPath?: string;
      image: string;
      runtime?: string;
      egressNetwork?: string;
    };
    /** The results of setups, which sessions share. */
    builds: {
      /** How many are kept that no sandbox uses, and for how long. */
      kept: number;
      keptSeconds: number;
      /** The longest duration of a build. */
      limitMs: number;
    };
    /** Only used by the driver `kubernetes`. */
    kubernetes: KubernetesConfig;
    /** Only used by the driver `sprites`. */
    sprites: SpritesConfig;
  };
  readonly gateway!: GatewayAddresses;
  /** `undefined`: only processes that reach the sandboxes themselves have access to their files. */
  readonly worker?: WorkerAddress;
  /** What sandboxes reach besides public addresses, and how. Has the proxy's password. */
  readonly network!: EgressNetwork;
  readonly sessionLimit!: number;
  /** Counts all versions of a user's agents and environments; 0: no limit. */
  readonly storedBytesPerUser!: number;
  /** 0: no limit. */
  readonly requestsPerMinute!: number;
  /** Tokens that a user's sessions may use in a calendar month (UTC); 0: no limit. */
  readonly tokensPerMonth!: number;
  /** What a user's sessions may cost in a calendar month (UTC), in USD; 0: no limit. */
  readonly usdPerMonth!: number;
  /** The prices of models, instead of the list that comes with the service. */
  readonly pricesFile?: string;
  /** Open streams in this process at a time; 0: no limit. */
  readonly streamsPerUser!: number;
  /** Prepare the files that sandboxes share when the service starts, instead of for the first sandbox. */
  readonly prepareSandboxes!: boolean;
  /** Build environments when they are saved, instead of for their first session. */
  readonly buildOnSave!: boolean;
  /** A transfer of a file ends if the client neither sends nor takes anything for this long. */
  readonly fileIdleSeconds!: number;
  readonly workerConcurrency!: number;
  readonly leaseSeconds!: number;
  /** How often a turn may be claimed without making progress before it fails. */
  readonly turnClaimLimit!: number;
  /** If no worker of a host sends a heartbeat for this long, its sandboxes and their turns are given up. */
  readonly hostLostSeconds!: number;
  readonly heartbeatSeconds!: number;
  readonly staleAfterSeconds!: number;
  readonly logRetentionDays!: number;
  readonly outputLimitBytes!: number;
  /** A host with less free disk space rejects new sessions; `undefined`: 2 GiB or 5 %, whichever is less. */
  readonly diskWatermarkBytes?: number;
  readonly bodyLimitBytes!: number;
  /** Connections to this process; further ones are closed immediately. */
  readonly maxConnections!: number;
  /** Raw `ENCRYPTION_KEYS`; parsed by the key ring. */
  readonly encryptionKeys?: string;
  readonly providers!: {
    anthropic: ProviderAccess;
    openai: ProviderAccess;
    google: ProviderAccess;
  };
  readonly logLevel!: 'fatal' | 'error' | 'warn' | 'log' | 'debug' | 'verbose';
  /** `undefined`: depends on whether the output is a terminal. */
  readonly logFormat?: 'json' | 'pretty';
  readonly metricsPort?: number;
  /** Whether the web console is served, and its cookie accepted. */
  readonly console!: boolean;
  /** `undefined`: tracing is disabled. */
  readonly tracing?: TracingConfig;
}

const DRIVERS = ['local', 'docker', 'kubernetes', 'sprites'] as const;
const LOG_LEVELS = ['fatal', 'error', 'warn', 'log', 'info', 'debug', 'verbose', 'trace'] as const;

/**
 * Reads the configuration.
 * @throws ConfigError with a one-line message that names the variable and says what it expects.
 */
export function loadConfig(env: Environment): AppConfig {
  const read = new EnvironmentReader(env);
  const dataDir = resolve(read.text('DATA_DIR') ?? '.data');
  const level = read.oneOf('LOG_LEVEL', 'log', LOG_LEVELS);
  const metricsPort = read.text('METRICS_PORT');
  const config: AppConfig = {
    port: read.integer('PORT', 8080, { min: 0, max: 65_535 }),
    host: read.host('HOST', '127.0.0.1'),
    databaseUrl: readDatabaseUrl(read),
    databasePoolSize: read.integer('DATABASE_POOL_SIZE', 12, { min: 4, max: 500 }),
    dataDir,
    cacheDir: resolve(read.text('CACHE_DIR') ?? join(dataDir, 'cache')),
    role: read.oneOf('APP_ROLE', 'all', ['all', 'api', 'worker', 'gateway']),
    apiPrefix: readPrefix(read),
    publicUrl: (read.url('PUBLIC_URL', ['http', 'https']) ?? '').replace(/\/+$/, ''),
    sandbox: {
      driver: read.oneOf('SANDBOX_DRIVER', 'local', DRIVERS),
      isolation: read.oneOf('SANDBOX_ISOLATION', 'strict', ['strict', 'degraded']),
      memoryBytes: read.bytes('SANDBOX_MEMORY', 2 * 2 ** 30, '64MiB'),
      diskBytes: read.bytes('SANDBOX_DISK', 4 * 2 ** 30, '16MiB'),
      processes: read.integer('SANDBOX_PROCESSES', 512, { min: 8, max: 100_000 }),
      cpus: read.fraction('SANDBOX_CPUS', { min: 0.01, max: 1024 }),
      idleTtlSeconds: read.duration('SANDBOX_IDLE_TTL', 86_400),
      perUser: read.integer('SANDBOXES_PER_USER', 0, { min: 0, max: 1_000_000 }),
      orphanGraceSeconds: read.duration('ORPHAN_GRACE', 900),
      warmPool: read.integer('WARM_POOL', 0, { min: 0, max: 1_000 }),
      docker: readDocker(read),
      builds: {
        kept: read.integer('SANDBOX_CACHED_IMAGES', 20, { min: 0, max: 10_000 }),
        keptSeconds: read.duration('SANDBOX_CACHED_IMAGE_TTL', 7 * 86_400),
        limitMs: read.duration('BUILD_TIMEOUT', 900) * 1000,
      },
      kubernetes: readKubernetes(read),
      sprites: readSprites(read),
    },
    gateway: readGateway(read),
    worker: readWorkerAddress(read),
    network: readNetwork(read),
    sessionLimit: read.integer('SESSION_LIMIT', 10, { min: 0, max: 1_000_000 }),
    storedBytesPerUser: read.bytesOrNone('STORED_BYTES_PER_USER', 2 ** 30),
    requestsPerMinute: read.integer('REQUESTS_PER_MINUTE', 0, { min: 0, max: 1_000_000 }),
    tokensPerMonth: read.integer('TOKENS_PER_MONTH', 0, { min: 0, max: 10 ** 15 }),
    usdPerMonth: read.fraction('USD_PER_MONTH', { min: 0, max: 10 ** 9 }) ?? 0,
    pricesFile: readPath(read, 'PRICES_FILE'),
    streamsPerUser: read.integer('STREAMS_PER_USER', 0, { min: 0, max: 1_000_000 }),
    prepareSandboxes: read.oneOf('PREPARE_SANDBOXES', 'off', ['on', 'off']) === 'on',
    buildOnSave: read.oneOf('BUILD_ON_SAVE', 'off', ['on', 'off']) === 'on',
    workerConcurrency: read.integer('WORKER_CONCURRENCY', Math.max(8, availableParallelism() * 4), {
      min: 1,
      max: 10_000,
    }),
    fileIdleSeconds: read.seconds('FILE_IDLE_SECONDS', 60, { min: 0.1, max: 3600 }),
    leaseSeconds: read.seconds('LEASE_SECONDS', 15, { min: 0.5, max: 3600 }),
    turnClaimLimit: read.integer('TURN_CLAIM_LIMIT', 5, { min: 1, max: 1_000 }),
    hostLostSeconds: read.seconds('HOST_LOST_SECONDS', 300, { min: 1, max: 31_536_000 }),
    heartbeatSeconds: read.seconds('HEARTBEAT_SECONDS', 15, { min: 0.05, max: 3600 }),
    staleAfterSeconds: read.seconds('STALE_AFTER_SECONDS', 600, { min: 0.1, max: 86_400 }),
    logRetentionDays: read.integer('LOG_RETENTION_DAYS', 30, { min: 1, max: 36_500 }),
    outputLimitBytes: read.bytes('OUTPUT_LIMIT', 256 * 2 ** 20, '1KiB'),
    diskWatermarkBytes: readWatermark(read),
    bodyLimitBytes: read.bytes('BODY_LIMIT', 4 * 2 ** 20, '1KiB'),
    maxConnections: read.integer('MAX_CONNECTIONS', 20_000, { min: 1, max: 1_000_000 }),
    encryptionKeys: read.text('ENCRYPTION_KEYS'),
    providers: {
      anthropic: readProvider(read, 'ANTHROPIC'),
      openai: readProvider(read, 'OPENAI'),
      google: readProvider(read, 'GEMINI'),
    },
    console: read.oneOf('CONSOLE', 'on', ['on', 'off']) === 'on',
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
  if (config.role === 'gateway') requireKeys(config);
  else if (config.role !== 'all' && config.databaseUrl === undefined) {
    throw new ConfigError(
      'APP_ROLE',
      `"${config.role}" needs DATABASE_URL: the embedded PostgreSQL only serves one process`,
    );
  }
  const { driver, isolation, warmPool } = config.sandbox;
  if (driver === 'sprites') requireToken(config);
  if (driver === 'kubernetes' && config.role !== 'gateway') requireKubernetesGateway(config);
  if (warmPool > 0 && driver === 'local' && isolation === 'degraded') {
    throw new ConfigError(
      'WARM_POOL',
      'needs SANDBOX_ISOLATION=strict: sandboxes in the pool must have no network',
    );
  }
  return Object.freeze(Object.assign(new AppConfig(), config));
}

function readPath(read: EnvironmentReader, name: string): string | undefined {
  const path = read.text(name);
  return path === undefined ? undefined : resolve(path);
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

/** 0 disables the limit, although 0 is not a valid size. */
function readWatermark(read: EnvironmentReader): number | undefined {
  const text = read.text('DISK_WATERMARK');
  if (text === undefined || text === '0') return text === undefined ? undefined : 0;
  return read.bytes('DISK_WATERMARK', 0);
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
    egressNetwork: read.text('SANDBOX_EGRESS_NETWORK'),
  };
}

function readProvider(read: EnvironmentReader, name: string): ProviderAccess {
  return {
    apiKey: read.text(`${name}_API_KEY`),
    baseUrl: read.url(`${name}_BASE_URL`, ['http', 'https'])?.replace(/\/+$/, ''),
  };
}
