import type { ExportedMetric } from '../../../gateway/broker/broker-stats.js';

const PREFIX = 'agent_sessions_kubernetes_';

/** Counts the requests to the API server, for the service's metrics. */
export class KubeStats {
  private readonly requests = new Map<string, Map<string, number>>();
  private readonly pods = new Map<string, number>();

  /** @param status of the answer; `undefined` if there was none */
  noteAnswer(operation: string, status: number | undefined): void {
    const counts = this.requests.get(operation) ?? new Map<string, number>();
    const key = String(status ?? 'none');
    this.requests.set(operation, counts.set(key, (counts.get(key) ?? 0) + 1));
  }

  /** Counts a pod that was created, ended while it was needed, or could not be started. */
  notePod(event: 'created' | 'replaced' | 'failed'): void {
    this.pods.set(event, (this.pods.get(event) ?? 0) + 1);
  }

  export(): ExportedMetric[] {
    const answers = [...this.requests].flatMap(([operation, counts]) =>
      [...counts].map(([status, value]) => ({ labels: { operation, status }, value })),
    );
    const events = [...this.pods].map(([event, value]) => ({ labels: { event }, value }));
    return [
      counter('requests_total', 'Requests to the API server of Kubernetes', answers),
      counter('pods_total', 'Pods of sandboxes that were created, replaced or failed', events),
    ];
  }
}

function counter(name: string, help: string, values: ExportedMetric['values']): ExportedMetric {
  return { name: PREFIX + name, help, type: 'counter', aggregator: 'sum', values };
}
