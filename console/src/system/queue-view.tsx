import { api, body, type Schemas } from '../api/client.js';
import { Elapsed, Empty, Id } from '../components/basics.js';
import type { Column } from '../components/data-table.js';
import { literal } from '../lib/untrusted.js';
import { AskingButton, SystemTable, useSystemList } from './parts.js';

type Waiting = Schemas['WaitingSession'];

/** The sessions of all users that wait for a worker. */
export function QueueView() {
  const pages = useSystemList('queue', (limit, signal) =>
    body(api.GET('/operator/queue', { signal, params: { query: { limit } } })),
  );
  const columns: readonly Column<Waiting>[] = [
    { head: 'Session', cell: ({ id }) => <Id id={id} /> },
    { head: 'User', cell: ({ user }) => literal(user) },
    { head: 'Provider', cell: ({ provider }) => provider },
    { head: 'Turn', class: 'number', cell: ({ turn }) => turn },
    {
      head: 'Waits',
      class: 'number',
      cell: ({ waiting_since: since }) => <Elapsed from={since} />,
    },
    {
      head: 'For',
      class: 'sentence',
      cell: ({ progress }) => progress ?? 'A worker has just taken it',
    },
    { head: '', cell: (waiting) => <Terminate waiting={waiting} onDone={pages.reload} /> },
  ];
  return (
    <SystemTable
      pages={pages}
      what="waiting sessions"
      empty={
        <Empty title="Nobody waits">
          <p class="quiet">Sessions appear here while no worker has a free slot for them.</p>
        </Empty>
      }
      columns={columns}
    />
  );
}

function Terminate({ waiting: { id, user }, onDone }: { waiting: Waiting; onDone: () => void }) {
  return (
    <AskingButton
      label="Terminate"
      title={`Terminate a session of ${literal(user)}?`}
      run={() => body(api.POST('/operator/sessions/{id}/terminate', { params: { path: { id } } }))}
      onDone={onDone}
    >
      <p>It never runs, and its sandbox is removed. It cannot be continued.</p>
    </AskingButton>
  );
}
