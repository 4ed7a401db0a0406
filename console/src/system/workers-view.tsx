import { api, body, type Schemas } from '../api/client.js';
import { Empty, Time } from '../components/basics.js';
import type { Column } from '../components/data-table.js';
import { count } from '../lib/format.js';
import { literal } from '../lib/untrusted.js';
import { Host, SystemTable, useSystemList } from './parts.js';

const COLUMNS: readonly Column<Schemas['Worker']>[] = [
  { head: 'Worker', cell: ({ id }) => <code title={id}>{literal(id.slice(0, 24))}</code> },
  { head: 'State', cell: (worker) => <State worker={worker} /> },
  {
    head: 'Turns',
    class: 'number',
    cell: ({ running, slots }) => `${count(running)} of ${slots === null ? '?' : count(slots)}`,
  },
  { head: 'Driver', cell: ({ driver }) => driver },
  { head: 'Host', cell: ({ host }) => <Host name={host} /> },
  { head: 'Started', cell: ({ started_at: at }) => <Time at={at} /> },
  { head: 'Last seen', cell: ({ seen_at: at }) => <Time at={at} /> },
];

/** The processes that run turns. */
export function WorkersView() {
  const pages = useSystemList('workers', (limit, signal) =>
    body(api.GET('/operator/workers', { signal, params: { query: { limit } } })),
  );
  return (
    <SystemTable
      pages={pages}
      what="workers"
      empty={
        <Empty title="No worker has been seen">
          <p class="quiet">Nothing runs without one. Start one:</p>
          <pre class="output">APP_ROLE=worker npm run start:prod</pre>
        </Empty>
      }
      columns={COLUMNS}
    />
  );
}

function State({ worker }: { worker: Schemas['Worker'] }) {
  if (!worker.alive) {
    return <span class="status terminated">■ {worker.slots === 0 ? 'stopped' : 'not seen'}</span>;
  }
  if (worker.problem === null) return <span class="status completed">✓ ready</span>;
  return (
    <>
      <span class="status failed">✕ cannot make sandboxes</span>
      <p class="bad">{literal(worker.problem)}</p>
    </>
  );
}
