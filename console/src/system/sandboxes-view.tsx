import { useLocation, useSearch } from 'wouter-preact';
import { api, body, type Schemas } from '../api/client.js';
import { Empty, Id, Time } from '../components/basics.js';
import type { Column } from '../components/data-table.js';
import { literal } from '../lib/untrusted.js';
import { AskingButton, Host, SystemTable, useSystemList } from './parts.js';

type Sandbox = Schemas['Sandbox'];

const STATES = ['warming', 'ready', 'active', 'idle', 'deleting'] as const;

/** State → its class and sign, and why it cannot be destroyed. */
const LOOKS: Readonly<
  Record<Schemas['SandboxState'], readonly [look: string, sign: string, refusal?: string]>
> = {
  warming: ['pending', '◌', 'It is being made, and belongs to no session'],
  ready: ['completed', '✓', 'It is kept ready for the next session'],
  active: ['running', '▶', 'A turn runs in it. Terminate the session instead'],
  idle: ['terminated', '■'],
  deleting: ['pending', '◌', 'It is being destroyed already'],
};

/** The sandboxes of all users and hosts. */
export function SandboxesView() {
  const [path, navigate] = useLocation();
  const wanted = new URLSearchParams(useSearch()).get('state');
  const state = STATES.find((known) => known === wanted);
  const pages = useSystemList(`sandboxes ${state ?? ''}`, (limit, signal) =>
    body(
      api.GET('/operator/sandboxes', {
        signal,
        params: { query: { limit, ...(state && { state }) } },
      }),
    ),
  );
  const columns: readonly Column<Sandbox>[] = [
    { head: 'Sandbox', cell: ({ id }) => <Id id={id} /> },
    { head: 'State', cell: (sandbox) => <State sandbox={sandbox} /> },
    { head: 'Since', cell: ({ state_since: since }) => <Time at={since} /> },
    {
      head: 'Session',
      cell: ({ session_id: id }) =>
        id === null ? <span class="quiet">none</span> : <Id id={id} />,
    },
    {
      head: 'User',
      cell: ({ user }) => (user === null ? <span class="quiet">nobody</span> : literal(user)),
    },
    { head: 'Driver', cell: ({ driver }) => driver },
    { head: 'Host', cell: ({ host }) => <Host name={host} /> },
    { head: '', cell: (sandbox) => <Destroy sandbox={sandbox} onDone={pages.reload} /> },
  ];
  return (
    <>
      <div class="toolbar filters">
        <select
          aria-label="State"
          value={state ?? ''}
          onChange={({ currentTarget: { value } }) =>
            navigate(value === '' ? path : `${path}?state=${value}`)
          }
        >
          <option value="">Any state</option>
          {STATES.map((known) => (
            <option key={known}>{known}</option>
          ))}
        </select>
      </div>
      <SystemTable
        pages={pages}
        what="sandboxes"
        empty={
          <Empty title={state ? `No sandbox is ${state}` : 'There are no sandboxes'}>
            <p class="quiet">A session gets one with its first turn, and keeps it for a while.</p>
          </Empty>
        }
        columns={columns}
      />
    </>
  );
}

function State({ sandbox: { state } }: { sandbox: Sandbox }) {
  const [look, sign] = LOOKS[state];
  return (
    <span class={`status ${look}`}>
      <span aria-hidden="true">{sign}</span> {state}
    </span>
  );
}

function Destroy({ sandbox, onDone }: { sandbox: Sandbox; onDone: () => void }) {
  const { id, state, user } = sandbox;
  const [, , refusal] = LOOKS[state];
  return (
    <AskingButton
      label="Destroy"
      title="Destroy this sandbox?"
      refusal={refusal}
      run={() => body(api.POST('/operator/sandboxes/{id}/destroy', { params: { path: { id } } }))}
      onDone={onDone}
    >
      <p>
        All files in it are lost. The session of {literal(user ?? 'nobody')} stays readable but
        cannot be continued.
      </p>
    </AskingButton>
  );
}
