/** W3C Trace Context, version 00; later versions may have more behind it. */
const TRACEPARENT =
  /^(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const SAMPLED = 1;

/** The parts of a `traceparent`. */
export interface TraceContext {
  traceId: string;
  spanId: string;
  sampled: boolean;
}

/** @returns `undefined` for what is no valid `traceparent`: a caller's mistake begins a new trace. */
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
