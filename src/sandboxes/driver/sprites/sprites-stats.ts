import type { ExportedMetric } from '../../../gateway/broker/broker-stats.js';

const PREFIX = 'agent_sessions_sprites_';

/** Counts the requests to the vendor's interface, for the service's metrics. */
export class SpritesStats {
  private readonly requests = new Map<string, Map<string, number>>();
  private waits = 0;
  private waitedMs = 0;

  /** @param status of the answer; `undefined` if there was none */
  noteAnswer(operation: string, status: number | undefined): void {
    const counts = this.requests.get(operation) ?? new Map<string, number>();
    const key = String(status ?? 'none');
    this.requests.set(operation, counts.set(key, (counts.get(key) ?? 0) + 1));
  }

  /** Counts a pause before a request is retried. */
  noteWait(ms: number): void {
    this.waits += 1;
    this.waitedMs += ms;
  }

  export(): ExportedMetric[] {
    const answers = [...this.requests].flatMap(([operation, counts]) =>
      [...counts].map(([status, value]) => ({ labels: { operation, status }, value })),
    );
    return [
      counter('requests_total', 'Requests to the interface of Sprites', answers),
      counter('waits_total', 'Pauses before a request to Sprites was repeated', [
        { labels: {}, value: this.waits },
      ]),
      counter('wait_seconds_total', 'Time of these pauses', [
        { labels: {}, value: this.waitedMs / 1000 },
      ]),
    ];
  }
}

/** What a request does, from its method and path: one of a few words. */
export function operationOf(method: string, path: readonly string[]): string {
  const [name, part, , action] = path;
  if (name === undefined) return method === 'POST' ? 'create' : 'list';
  if (part === 'checkpoints') return action === 'restore' ? 'restore' : 'checkpoints';
  return part ?? (method === 'DELETE' ? 'delete' : 'get');
}

function counter(name: string, help: string, values: ExportedMetric['values']): ExportedMetric {
  return { name: PREFIX + name, help, type: 'counter', aggregator: 'sum', values };
}
