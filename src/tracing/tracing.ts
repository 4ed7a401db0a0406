export type SpanAttributes = Readonly<Record<string, string | number | boolean>>;

export interface SpanOptions {
  name: string;
  /** `server`: answers a request; `consumer`: takes from the queue. Default `internal`. */
  kind?: 'server' | 'consumer' | 'internal';
  /** W3C trace context of the span that this one is part of. Without it, a trace begins. */
  parent?: string;
  /** 16 hexadecimal digits. Default: random. */
  id?: string;
  /** Milliseconds since 1970. Default: now. */
  startedAt?: number;
  /** Never secrets, never what clients or agents wrote. */
  attributes?: SpanAttributes;
}

/** A piece of work with a beginning and an end; sent when it has ended, and lost when it never does. */
export interface Span {
  /** W3C trace context of this span, for what is part of it. */
  readonly traceparent: string;
  /** @param error what kind of failure it was, from a small set of words. */
  end(options?: { error?: string; attributes?: SpanAttributes }): void;
}

/** Where spans are begun. Injected; {@link Tracing.off} makes none and costs nothing. */
export abstract class Tracing {
  static readonly off: Tracing = {
    start: () => undefined,
    stop: async () => undefined,
  };

  /** @returns `undefined` where traces are off. */
  abstract start(options: SpanOptions): Span | undefined;

  /** Sends what has ended, in bounded time. */
  abstract stop(): Promise<void>;
}
