import { ConfigError, type EnvironmentReader } from './parse.js';

const EXPORTERS = ['otlp', 'console'] as const;
const PROTOCOLS = ['http/protobuf', 'http/json'] as const;
const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;
const ENDPOINTS = ['OTEL_EXPORTER_OTLP_ENDPOINT', 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'] as const;
const HEADERS = ['OTEL_EXPORTER_OTLP_HEADERS', 'OTEL_EXPORTER_OTLP_TRACES_HEADERS'] as const;

/**
 * How spans are sampled and exported, from OpenTelemetry's own variables. The SDK itself reads the endpoint, the
 * headers and the attributes of this process (`OTEL_EXPORTER_OTLP_*`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME`).
 */
export interface TracingConfig {
  exporters: readonly (typeof EXPORTERS)[number][];
  protocol: (typeof PROTOCOLS)[number];
  sampler: (typeof SAMPLERS)[number];
  /** The ratio of ratio samplers, 0 to 1. */
  ratio: number;
  batch: { delayMs: number; timeoutMs: number; queueSize: number; batchSize: number };
  /** The values of the exporter's headers. */
  secrets: readonly string[];
}

/**
 * Tracing is enabled if the variables configure an exporter and do not disable tracing.
 * @throws ConfigError
 */
export function readTracing(read: EnvironmentReader): TracingConfig | undefined {
  const endpoints = ENDPOINTS.map((name) => read.url(name, ['http', 'https']));
  const named = list(read.text('OTEL_TRACES_EXPORTER'));
  if (read.text('OTEL_SDK_DISABLED')?.toLowerCase() === 'true') return undefined;
  const wanted = named ?? (endpoints.some((url) => url !== undefined) ? ['otlp'] : []);
  const exporters = wanted.filter((name) => name !== 'none').map(exporterOf);
  if (exporters.length === 0) return undefined;
  const batchSize = read.integer('OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 512, { min: 1, max: 65_536 });
  return {
    exporters,
    protocol:
      read.text('OTEL_EXPORTER_OTLP_TRACES_PROTOCOL') === undefined
        ? read.oneOf('OTEL_EXPORTER_OTLP_PROTOCOL', 'http/protobuf', PROTOCOLS)
        : read.oneOf('OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'http/protobuf', PROTOCOLS),
    sampler: read.oneOf('OTEL_TRACES_SAMPLER', 'parentbased_always_on', SAMPLERS),
    ratio: readRatio(read),
    batch: {
      delayMs: read.integer('OTEL_BSP_SCHEDULE_DELAY', 5_000, { min: 0, max: 600_000 }),
      timeoutMs: read.integer('OTEL_BSP_EXPORT_TIMEOUT', 30_000, { min: 1, max: 600_000 }),
      queueSize: read.integer('OTEL_BSP_MAX_QUEUE_SIZE', 2_048, { min: batchSize, max: 1_000_000 }),
      batchSize,
    },
    secrets: HEADERS.flatMap((name) => headerValues(read.text(name) ?? '')),
  };
}

function list(text: string | undefined): string[] | undefined {
  return text?.split(',').map((part) => part.trim());
}

function exporterOf(name: string): (typeof EXPORTERS)[number] {
  const found = EXPORTERS.find((candidate) => candidate === name);
  if (found === undefined) {
    throw new ConfigError(
      'OTEL_TRACES_EXPORTER',
      `must be ${EXPORTERS.join(', ')} or none, not "${name}"`,
    );
  }
  return found;
}

function readRatio(read: EnvironmentReader): number {
  const text = read.text('OTEL_TRACES_SAMPLER_ARG') ?? '1';
  const ratio = Number(text);
  if (!(ratio >= 0 && ratio <= 1)) {
    throw new ConfigError('OTEL_TRACES_SAMPLER_ARG', `must be a number from 0 to 1, not "${text}"`);
  }
  return ratio;
}

/** `name=value,name=value`, values as in a URL. */
function headerValues(text: string): string[] {
  return text.split(',').flatMap((pair) => {
    const value = pair.slice(pair.indexOf('=') + 1).trim();
    // In `Bearer x`, only the part after the scheme is secret, and it may be logged without the scheme.
    return pair.includes('=')
      ? [value, safeDecode(value), safeDecode(value).split(' ').at(-1) ?? '']
      : [];
  });
}

function safeDecode(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}
