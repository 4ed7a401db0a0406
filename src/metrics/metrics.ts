import { Injectable } from '@nestjs/common';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { AppConfig } from '../config/app-config.js';

const PREFIX = 'agent_sessions_';

export type Labels<L extends string> = Record<L, string>;

/** One figure of several that differ in their labels. */
export interface Reading<L extends string> {
  labels: Labels<L>;
  value: number;
}

/**
 * What this process has to tell Prometheus. Whoever knows a figure registers it here, once, by a name without prefix.
 * Label values come from small sets: never ids, never what a client sent. Where nobody can ask (no METRICS_PORT),
 * counting costs a call. docs/observability.md lists them all; a test compares.
 */
@Injectable()
export class Metrics {
  private readonly registry = new Registry();
  private readonly enabled: boolean;

  constructor(config: AppConfig) {
    this.enabled = config.metricsPort !== undefined;
    // The event loop's delay, garbage collection, memory, CPU, file descriptors, by their usual names.
    if (this.enabled) collectDefaultMetrics({ register: this.registry });
  }

  /** @param read asked at each scrape; a figure that cannot be had right now is NaN. */
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

  /** @param read asked at each scrape; there are none when it fails. */
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

  /** @returns what counts more, one if not said otherwise. */
  counter(name: string, help: string): (by?: number) => void {
    const counter = new Counter({
      name: `${PREFIX}${name}_total`,
      help,
      registers: [this.registry],
    });
    return (by = 1) => counter.inc(by);
  }

  /**
   * A counter for each of a few known cases, which all begin at 0.
   * @returns what counts one more of a case.
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

  /** A counter that is kept elsewhere, where counting has to cost nothing. @param read what it stands at. */
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
   * @param buckets upper bounds, rising.
   * @returns what takes a value.
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

  get contentType(): string {
    return this.registry.contentType;
  }

  /** All figures in Prometheus's text format. */
  async text(): Promise<string> {
    return this.registry.metrics();
  }
}

/** Bounds for what a client waits for: 1 ms to 10 s. */
export const SHORT_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10];
/** Bounds for what is done in sandboxes: 10 ms to 10 minutes. */
export const WORK_SECONDS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 180, 600];
/** Bounds for turns and streams: 1 s to a day. */
export const LONG_SECONDS = [1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400];
