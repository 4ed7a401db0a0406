import { prepareWorkload } from './chaos.js';
import { Cluster } from './cluster.js';
import { ask } from './http.js';
import { Random } from './random.js';
import { StreamReader } from './stream-reader.js';
import { Tally } from './workload.js';

const EVENTS = 400;
const WARM_UP = 40;

/**
 * How much later an event arrives from a process that does not run the turn than from the one that does: two readers of
 * the same session, the same events, one clock.
 */
export async function measureLatency(log: (line: string) => void): Promise<void> {
  const cluster = await Cluster.start({ api: 1, workers: 0, all: 1 });
  try {
    const signal = AbortSignal.timeout(180_000);
    const { agentId } = await prepareWorkload(cluster, new Random(1), new Tally(), signal, {
      readersPerSession: 1,
      turnSeconds: [1, 1],
    });
    const [within, across] = cluster.apis;
    if (!within || !across) throw new Error('two processes are needed');
    const prompt = `for ((i = 1; i <= ${EVENTS}; i++)); do date +%s%N; sleep 0.06; done`;
    const { body } = await ask(`${within.url}/sessions`, {
      method: 'POST',
      token: cluster.token,
      body: { agent_id: agentId, prompt },
    });
    const read = async (base: string) => {
      const arrivals = new Map<number, { at: number; written: number }>();
      const reader = new StreamReader({
        sessionId: String(body['id']),
        token: cluster.token,
        base: () => base,
        patience: () => undefined,
        signal,
        onEvent: ({ type, id = 0, data = '' }) => {
          const at = performance.timeOrigin + performance.now();
          if (type === 'output') arrivals.set(id, { at, written: Number(data.slice(0, 19)) / 1e6 });
        },
      });
      await reader.read();
      return arrivals;
    };
    const [here, there] = await Promise.all([read(within.url), read(across.url)]);
    const ids = [...here.keys()].filter((id) => there.has(id)).slice(WARM_UP);
    const at = (arrivals: typeof here, id: number) => arrivals.get(id) ?? { at: 0, written: 0 };
    const since = (arrivals: typeof here) =>
      ids.map((id) => at(arrivals, id).at - at(arrivals, id).written);
    log(`${ids.length} events, written one by one; milliseconds`);
    log(`  from the write to a reader of the process that runs the turn:  ${summary(since(here))}`);
    log(
      `  from the write to a reader of another process:                 ${summary(since(there))}`,
    );
    log(
      `  how much later the other process:                              ${summary(ids.map((id) => at(there, id).at - at(here, id).at))}`,
    );
  } finally {
    await cluster.stop();
  }
}

function summary(values: readonly number[]): string {
  const sorted = values.toSorted((a, b) => a - b);
  const of = (share: number) => (sorted[Math.floor((sorted.length - 1) * share)] ?? 0).toFixed(1);
  return `median ${of(0.5)}, p95 ${of(0.95)}, worst ${of(1)}`;
}
