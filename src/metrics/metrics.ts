import { Injectable } from '@nestjs/common';
import { Counter, Gauge, Registry } from 'prom-client';

const PREFIX = 'agent_sessions_';

/** What this process has to tell Prometheus. Whoever knows a figure registers it here, once, by a name without prefix. */
@Injectable()
export class Metrics {
  private readonly registry = new Registry();

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

  /** @returns what counts one more. */
  counter(name: string, help: string): () => void {
    const counter = new Counter({
      name: `${PREFIX}${name}_total`,
      help,
      registers: [this.registry],
    });
    return () => counter.inc();
  }

  get contentType(): string {
    return this.registry.contentType;
  }

  /** All figures in Prometheus's text format. */
  async text(): Promise<string> {
    return this.registry.metrics();
  }
}
