import { Injectable } from '@nestjs/common';
import {
  AggregatorRegistry,
  collectDefaultMetrics,
  Counter,
  Gauge,
  Histogram,
  Registry,
} from 'prom-client';
import { AppConfig } from '../config/app-config.js';

const PREFIX = 'agent_sessions_';

export type Labels<L extends string> = Record<L, string>;

/** One sample of a metric with labels. */
export interface Reading<L extends string> {
  labels: Labels<L>;
  value: number;
}

/**
 * The process's Prometheus metrics. Each component registers its own metrics here, once, with a name without prefix.
 * Label values come from small sets and never contain ids or text of clients. If METRICS_PORT is not set, counting
 * costs only a function call. docs/observability.md lists all metrics, which a test verifies.
 */
@Injectable()
export class Metrics {
  private readonly registry = new Registry();
  private readonly sources: (() => Promise<readonly object[]>)[] = [];
  private readonly enabled: boolean;

  constructor(config: AppConfig) {
    this.enabled = config.metricsPort !== undefined;
    // Delay of the event loop, garbage collection, memory, CPU and file descriptors, under their usual names.
    if (this.enabled) collectDefaultMetrics({ register: this.registry });
  }

  /** @param read is called at each scrape; the value is NaN if it fails. */
  gauge(name: string, help: string, read: () => number | Promise<number>): void {
    const gauge = new Gauge({
      name: PREFIX + name,
      help,
      registers: [this.registry],
      collect: async () => {
        try {
          gauge.set(await read());
        } catch {
          gauge.set(Number.NaN);
        }
      },
    });
  }

  /** @param read is called at each scrape; there are no samples if it fails. */
  gauges<L extends string>(
    name: string,
    help: string,
    labelNames: readonly L[],
    read: () => Promise<readonly Reading<L>[]>,
  ): void {
    const gauge = new Gauge({
      name: PREFIX + name,
      help,
      labelNames,
      registers: [this.registry],
      collect: async () => {
        const readings = await read().catch(() => []);
        gauge.reset();
        for (const { labels, value } of readings) gauge.set(labels, value);
      },
    });
  }

  /** @returns a function that increments the counter, by one unless specified. */
  counter(name: string, help: string): (by?: number) => void {
    const counter = new Counter({
      name: `${PREFIX}${name}_total`,
      help,
      registers: [this.registry],
    });
    return (by = 1) => counter.inc(by);
  }

  /**
   * A counter with one label value for each known case, all starting at 0.
   * @returns a function that increments the counter of a case.
   */
  counters<V extends string>(
    name: string,
    help: string,
    label: string,
    cases: readonly V[],
  ): (value: V) => void {
    const counter = new Counter({
      name: `${PREFIX}${name}_total`,
      help,
      labelNames: [label],
      registers: [this.registry],
    });
    for (const value of cases) counter.inc({ [label]: value }, 0);
    return (value) => counter.inc({ [label]: value });
  }

  /** A counter with several labels. @returns a function that adds to the counter of these values */
  labelled<L extends string>(
    name: string,
    help: string,
    labelNames: readonly L[],
  ): (labels: Labels<L>, by: number) => void {
    const counter = new Counter({
      name: `${PREFIX}${name}_total`,
      help,
      labelNames,
      registers: [this.registry],
    });
    return (labels, by) => counter.inc(labels, by);
  }

  /** A counter that is maintained elsewhere because counting must cost nothing. @param read returns its value. */
  total(name: string, help: string, read: () => number): void {
    const counter = new Counter({
      name: `${PREFIX}${name}_total`,
      help,
      registers: [this.registry],
      collect: () => {
        counter.reset();
        counter.inc(read());
      },
    });
  }

  /**
   * @param buckets ascending upper bounds.
   * @returns a function that observes a value.
   */
  histogram<L extends string>(
    name: string,
    help: string,
    buckets: readonly number[],
    labelNames: readonly L[],
  ): (value: number, labels: Labels<L>) => void {
    const histogram = new Histogram({
      name: PREFIX + name,
      help,
      buckets: [...buckets],
      labelNames,
      registers: [this.registry],
    });
    return (value, labels) => {
      if (this.enabled) histogram.observe(labels, value);
    };
  }

  /** Adds metrics of another process. @param read is called at each scrape; returns them as prom-client exports them. */
  include(read: () => Promise<readonly object[]>): void {
    this.sources.push(read);
  }

  get contentType(): string {
    return this.registry.contentType;
  }

  /** All metrics in Prometheus's text format. */
  async text(): Promise<string> {
    const included = await Promise.all(this.sources.map((read) => read().catch(() => [])));
    const others = AggregatorRegistry.aggregate(included.map((metrics) => [...metrics]));
    return `${await this.registry.metrics()}${await others.metrics()}`;
  }
}

/** Buckets for latencies that clients see: 1 ms to 10 s. */
export const SHORT_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10];
/** Buckets for work in sandboxes: 10 ms to 10 minutes. */
export const WORK_SECONDS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 180, 600];
/** Buckets for turns and streams: 1 s to a day. */
export const LONG_SECONDS = [1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400];
