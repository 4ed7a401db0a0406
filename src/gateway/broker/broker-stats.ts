import {
  type Exchange,
  type Service,
  SERVICES,
  UPSTREAM_ERRORS,
  type UpstreamError,
} from './exchange.js';
import { type GrantRefusal, GRANT_REFUSALS } from './route.js';

const PREFIX = 'agent_sessions_gateway_';
/** Upper bounds of the histogram's buckets, in seconds. */
const BUCKETS = [0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5];

const RESULTS = ['answered', 'refused', 'failed', 'cancelled'] as const;
type Result = (typeof RESULTS)[number];

/** A metric with its values, in the format in which prom-client exports them. */
export interface ExportedMetric {
  name: string;
  help: string;
  type: 'counter' | 'histogram';
  aggregator: 'sum';
  values: { labels: Record<string, string | number>; value: number; metricName?: string }[];
}

interface Distribution {
  /** The number of values in each bucket; the last one is for larger values. */
  counts: number[];
  sum: number;
}

/** Counts what the broker does. The service passes the numbers on to its metrics. */
export class BrokerStats {
  private readonly requests = cases(SERVICES, RESULTS);
  private readonly refusals = new Map<GrantRefusal, number>(
    GRANT_REFUSALS.map((reason) => [reason, 0]),
  );
  private readonly errors = cases(SERVICES, UPSTREAM_ERRORS);
  private readonly added = new Map<Service, Distribution>(
    SERVICES.map((service) => [service, { counts: BUCKETS.map(() => 0).concat(0), sum: 0 }]),
  );

  note(exchange: Exchange): void {
    const { service, addedMs } = exchange;
    increment(this.requests.get(service), resultOf(exchange));
    if (exchange.reason !== undefined) increment(this.refusals, exchange.reason);
    const error = errorOf(exchange);
    if (error !== undefined) increment(this.errors.get(service), error);
    if (addedMs !== undefined) observe(this.added.get(service), addedMs / 1000);
  }

  export(): ExportedMetric[] {
    return [
      counter(
        'requests_total',
        'Requests of agents to the gateway',
        rows(this.requests, 'service', 'result'),
      ),
      counter(
        'refused_grants_total',
        'Requests that the gateway refused because of their grant',
        [...this.refusals].map(([reason, value]) => ({ labels: { reason }, value })),
      ),
      counter(
        'upstream_errors_total',
        'Requests that the gateway forwarded and that the upstream did not answer, or with an error',
        rows(this.errors, 'service', 'error'),
      ),
      {
        ...described('added_seconds', 'Time that the gateway added until a response began'),
        type: 'histogram',
        values: [...this.added].flatMap(([service, of]) =>
          distribution(`${PREFIX}added_seconds`, { service }, of),
        ),
      },
    ];
  }
}

function resultOf({ refused, failed }: Exchange): Result {
  if (refused !== undefined) return 'refused';
  if (failed === undefined) return 'answered';
  return failed === 'cancelled' ? 'cancelled' : 'failed';
}

function errorOf({ refused, failed, status }: Exchange): UpstreamError | undefined {
  if (refused !== undefined || failed === 'cancelled') return undefined;
  if (failed !== undefined) return failed;
  if (status === 401 || status === 403) return 'unauthorized';
  if (status === 429) return 'rate_limited';
  return status >= 500 ? 'server_error' : undefined;
}

function cases<A, B>(first: readonly A[], second: readonly B[]): Map<A, Map<B, number>> {
  return new Map(first.map((a) => [a, new Map(second.map((b) => [b, 0]))]));
}

function increment<K>(counts: Map<K, number> | undefined, key: K): void {
  counts?.set(key, (counts.get(key) ?? 0) + 1);
}

function observe(of: Distribution | undefined, value: number): void {
  if (of === undefined) return;
  const found = BUCKETS.findIndex((bound) => value <= bound);
  const bucket = found < 0 ? BUCKETS.length : found;
  of.counts[bucket] = (of.counts[bucket] ?? 0) + 1;
  of.sum += value;
}

function rows(counts: Map<string, Map<string, number>>, first: string, second: string) {
  return [...counts].flatMap(([a, inner]) =>
    [...inner].map(([b, value]) => ({ labels: { [first]: a, [second]: b }, value })),
  );
}

function described(name: string, help: string) {
  return { name: PREFIX + name, help, aggregator: 'sum' as const };
}

function counter(name: string, help: string, values: ExportedMetric['values']): ExportedMetric {
  return { ...described(name, help), type: 'counter', values };
}

/** The samples of a histogram: each bucket includes the smaller ones. */
function distribution(
  name: string,
  labels: Record<string, string>,
  { counts, sum }: Distribution,
): ExportedMetric['values'] {
  let total = 0;
  const buckets = counts.map((count, index) => {
    total += count;
    const le = BUCKETS[index] ?? '+Inf';
    return { labels: { le, ...labels }, value: total, metricName: `${name}_bucket` };
  });
  return [
    ...buckets,
    { labels, value: sum, metricName: `${name}_sum` },
    { labels, value: total, metricName: `${name}_count` },
  ];
}
