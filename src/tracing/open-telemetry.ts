import { setTimeout as delay } from 'node:timers/promises';
import { Logger } from '@nestjs/common';
import {
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Tracer,
} from '@opentelemetry/api';
import { ExportResultCode } from '@opentelemetry/core';
import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { OTLPTraceExporter as ProtobufExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ConsoleSpanExporter,
  type IdGenerator,
  ParentBasedSampler,
  RandomIdGenerator,
  type Sampler,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import type { TracingConfig } from '../config/tracing-config.js';
import {
  formatTraceparent,
  parseTraceparent,
  type Span,
  type SpanOptions,
  type Tracing,
} from './tracing.js';

const SERVICE_NAME = 'agent-session-service';
const STOP_LIMIT_MS = 3_000;
const KINDS = {
  server: SpanKind.SERVER,
  consumer: SpanKind.CONSUMER,
  internal: SpanKind.INTERNAL,
} as const;

/** Starts tracing. Imported only if traces are enabled, because it loads the SDK. */
export function startTracing(config: TracingConfig): Tracing {
  const ids = new ChosenIds();
  const provider = new TracerProvider({
    idGenerator: ids,
    sampler: samplerOf(config),
    resource: resourceFromAttributes({ 'service.name': SERVICE_NAME }).merge(
      detectResources({ detectors: [envDetector] }),
    ),
    spanProcessors: config.exporters.map(
      (name) =>
        new BatchSpanProcessor({
          exporter: new ToldOnce(name === 'console' ? new ConsoleSpanExporter() : otlp(config)),
          scheduledDelayMillis: config.batch.delayMs,
          exportTimeoutMillis: config.batch.timeoutMs,
          maxQueueSize: config.batch.queueSize,
          maxExportBatchSize: config.batch.batchSize,
        }),
    ),
  });
  const tracer = provider.getTracer(SERVICE_NAME);
  return {
    start: (options) => startSpan(tracer, ids, options),
    stop: async () => {
      const limit = new AbortController();
      await Promise.race([
        provider.shutdown().catch(() => undefined),
        delay(STOP_LIMIT_MS, undefined, { signal: limit.signal }).catch(() => undefined),
      ]);
      limit.abort();
    },
  };
}

function startSpan(tracer: Tracer, ids: ChosenIds, options: SpanOptions): Span {
  const { name, kind = 'internal', startedAt, attributes } = options;
  const parent = parseTraceparent(options.parent);
  const context = parent
    ? trace.setSpanContext(ROOT_CONTEXT, {
        traceId: parent.traceId,
        spanId: parent.spanId,
        traceFlags: parent.sampled ? TraceFlags.SAMPLED : TraceFlags.NONE,
        isRemote: true,
      })
    : ROOT_CONTEXT;
  const span = ids.choosing(options.id, () =>
    tracer.startSpan(name, { kind: KINDS[kind], startTime: startedAt, attributes }, context),
  );
  const { traceId, spanId, traceFlags } = span.spanContext();
  return {
    traceparent: formatTraceparent({
      traceId,
      spanId,
      sampled: (traceFlags & TraceFlags.SAMPLED) !== 0,
    }),
    end: ({ error, attributes: more } = {}) => {
      if (more) span.setAttributes(more);
      if (error !== undefined) {
        span.setAttribute('error.type', error);
        span.setStatus({ code: SpanStatusCode.ERROR });
      }
      span.end();
    },
  };
}

/**
 * Generates random ids, except for spans whose id is decided in advance: child spans of a turn refer to its id before
 * it ends, and any process may end it.
 */
class ChosenIds implements IdGenerator {
  private readonly random = new RandomIdGenerator();
  private chosen: string | undefined;

  choosing<T>(spanId: string | undefined, start: () => T): T {
    this.chosen = spanId;
    try {
      return start();
    } finally {
      this.chosen = undefined;
    }
  }

  generateTraceId(): string {
    return this.random.generateTraceId();
  }

  generateSpanId(): string {
    return this.chosen ?? this.random.generateSpanId();
  }
}

/** Logs once when spans cannot be exported, and once when they can be again. */
class ToldOnce implements SpanExporter {
  private readonly logger = new Logger('Tracing');
  private failing = false;

  constructor(private readonly exporter: SpanExporter) {}

  export(...[spans, done]: Parameters<SpanExporter['export']>): void {
    this.exporter.export(spans, (result) => {
      const failed = result.code !== ExportResultCode.SUCCESS;
      if (failed && !this.failing) {
        this.logger.warn(
          `Traces cannot be sent, and are dropped: ${result.error?.message ?? 'no reason given'}`,
        );
      }
      if (!failed && this.failing) this.logger.log('Traces can be sent again');
      this.failing = failed;
      done(result);
    });
  }

  async forceFlush(): Promise<void> {
    await this.exporter.forceFlush?.();
  }

  async shutdown(): Promise<void> {
    await this.exporter.shutdown();
  }
}

function otlp({ protocol }: TracingConfig): SpanExporter {
  return protocol === 'http/json' ? new JsonExporter() : new ProtobufExporter();
}

function samplerOf({ sampler, ratio }: TracingConfig): Sampler {
  switch (sampler) {
    case 'always_on':
      return new AlwaysOnSampler();
    case 'always_off':
      return new AlwaysOffSampler();
    case 'traceidratio':
      return new TraceIdRatioBasedSampler(ratio);
    case 'parentbased_always_on':
      return new ParentBasedSampler({ root: new AlwaysOnSampler() });
    case 'parentbased_always_off':
      return new ParentBasedSampler({ root: new AlwaysOffSampler() });
    case 'parentbased_traceidratio':
      return new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(ratio) });
  }
}
