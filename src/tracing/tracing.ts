/** W3C Trace Context, version 00; later versions may append fields. */
const TRACEPARENT =
  /^(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const SAMPLED = 1;

/** The parts of a `traceparent`. */
export interface TraceContext {
  traceId: string;
  spanId: string;
  sampled: boolean;
}

/** @returns `undefined` for an invalid `traceparent`; the request then starts a new trace. */
export function parseTraceparent(text: unknown): TraceContext | undefined {
  const match = typeof text === 'string' ? TRACEPARENT.exec(text.trim()) : null;
  const [, version, traceId, spanId, flags = '', more] = match ?? [];
  if (traceId === undefined || spanId === undefined) return undefined;
  if (version === '00' && more !== undefined) return undefined;
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & SAMPLED) === SAMPLED };
}

export function formatTraceparent({ traceId, spanId, sampled }: TraceContext): string {
  return `00-${traceId}-${spanId}-${sampled ? '01' : '00'}`;
}

export type SpanAttributes = Readonly<Record<string, string | number | boolean>>;

export interface SpanOptions {
  name: string;
  /** `server`: answers a request; `consumer`: takes work from the queue. Default `internal`. */
  kind?: 'server' | 'consumer' | 'internal';
  /** W3C trace context of the parent span. Without it, the span starts a new trace. */
  parent?: string;
  /** 16 hexadecimal digits. Default: random. */
  id?: string;
  /** Milliseconds since 1970. Default: now. */
  startedAt?: number;
  /** Must not contain secrets or text of clients or agents. */
  attributes?: SpanAttributes;
}

/** A span. It is exported when it ends, and lost if it never does. */
export interface Span {
  /** W3C trace context of this span, for its children. */
  readonly traceparent: string;
  /** @param error the kind of failure, from a small set of words. */
  end(options?: { error?: string; attributes?: SpanAttributes }): void;
}

/** Creates spans. Injected; {@link Tracing.off} creates none and costs nothing. */
export abstract class Tracing {
  static readonly off: Tracing = {
    start: () => undefined,
    stop: async () => undefined,
  };

  /** @returns `undefined` if traces are disabled. */
  abstract start(options: SpanOptions): Span | undefined;

  /** Exports the spans that have ended, within a time limit. */
  abstract stop(): Promise<void>;
}
