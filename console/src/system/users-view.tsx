import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { api, type ApiError, body, type Schemas } from '../api/client.js';
import { Confirm, Copy, Empty, ErrorBox, Id, Time } from '../components/basics.js';
import type { Column } from '../components/data-table.js';
import { bytes, count } from '../lib/format.js';
import { literal } from '../lib/untrusted.js';
import { SystemTable, useSystemList } from './parts.js';

type User = Schemas['User'];

const COLUMNS: readonly Column<User>[] = [
  {
    head: 'User',
    cell: ({ name, operator }) => (
      <>
        {literal(name)} {operator && <span class="quiet">· operator</span>}
      </>
    ),
  },
  { head: 'Id', cell: ({ id }) => <Id id={id} /> },
  {
    head: 'Session limit',
    class: 'number',
    cell: ({ session_limit: limit }) =>
      limit === null ? (
        <span class="quiet" title="SESSION_LIMIT, which holds for all users">
          default
        </span>
      ) : (
        count(limit)
      ),
  },
  { head: 'Stored', class: 'number', cell: ({ stored_bytes: stored }) => bytes(stored) },
  { head: 'Created', cell: ({ created_at: at }) => <Time at={at} /> },
  {
    head: '',
    class: 'buttons',
    cell: (user) => (
      <>
        <Link
          class="button small"
          href={`/system/tokens?${new URLSearchParams({ user: user.name }).toString()}`}
        >
          Tokens
        </Link>{' '}
        <IssueToken user={user} />
      </>
    ),
  },
];

/** The users, with forms for new ones and for their tokens. */
export function UsersView() {
  const pages = useSystemList('users', (limit, signal) =>
    body(api.GET('/operator/users', { signal, params: { query: { limit } } })),
  );
  const [creating, setCreating] = useState(false);
  return (
    <>
      <div class="toolbar filters">
        <p class="quiet grow">
          Only the command line makes operators: <code>user create NAME --operator</code>
        </p>
        <button type="button" class="primary" onClick={() => setCreating(true)}>
          New user
        </button>
      </div>
      <SystemTable
        pages={pages}
        what="users"
        empty={<Empty title="There are no users" />}
        columns={COLUMNS}
      />
      {creating && (
        <NewUser
          onClose={() => setCreating(false)}
          onCreated={() => {
            setCreating(false);
            pages.reload();
          }}
        />
      )}
    </>
  );
}

function NewUser({ onClose, onCreated }: { onClose: () => void; onCreated: () => void }) {
  const [name, setName] = useState('');
  const [limit, setLimit] = useState('');
  const [error, setError] = useState<ApiError>();
  const create = async (): Promise<void> => {
    setError(undefined);
    try {
      await body(
        api.POST('/operator/users', {
          body: { name, ...(limit !== '' && { session_limit: Number(limit) }) },
        }),
      );
      onCreated();
    } catch (reason) {
      setError(reason as ApiError);
    }
  };
  return (
    <Confirm
      title="New user"
      action="Create the user"
      onConfirm={() => void create()}
      onCancel={onClose}
    >
      <div class="form">
        <label for="user-name">Name</label>
        <input
          id="user-name"
          autoFocus
          autoComplete="off"
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
        />
        <label for="user-limit">Concurrent sessions</label>
        <input
          id="user-limit"
          type="number"
          min={0}
          placeholder="as for all users"
          value={limit}
          onInput={(event) => setLimit(event.currentTarget.value)}
        />
        {error && <ErrorBox error={error} />}
      </div>
    </Confirm>
  );
}

function IssueToken({ user }: { user: User }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" class="small" onClick={() => setOpen(true)}>
        Issue a token
      </button>
      {open && <TokenDialog user={user} onClose={() => setOpen(false)} />}
    </>
  );
}

/** Asks what a token is for, and then shows it once: it is gone when the dialog closes. */
function TokenDialog({ user, onClose }: { user: User; onClose: () => void }) {
  const [name, setName] = useState('');
  const [days, setDays] = useState('90');
  const [issued, setIssued] = useState<string>();
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const issue = async (): Promise<void> => {
    if (busy) return;
    setBusy(true);
    setError(undefined);
    try {
      const { token } = await body(
        api.POST('/operator/users/{id}/tokens', {
          params: { path: { id: user.id } },
          body: { name, ...(days !== '' && { expires_in_days: Number(days) }) },
        }),
      );
      setIssued(token);
    } catch (reason) {
      setError(reason as ApiError);
    } finally {
      setBusy(false);
    }
  };
  if (issued !== undefined) {
    return (
      <Confirm
        key="issued"
        title={`The new token of ${literal(user.name)}`}
        action="I have stored it"
        final
        onConfirm={onClose}
        onCancel={onClose}
      >
        <p>It is shown only now. The service keeps no more than its hash.</p>
        <p class="toolbar">
          <code class="target">{issued}</code>{' '}
          <Copy text={issued} label="Copy" title="Copy the token" />
        </p>
      </Confirm>
    );
  }
  return (
    <Confirm
      key="asking"
      title={`Issue a token of ${literal(user.name)}`}
      action="Issue the token"
      onConfirm={() => void issue()}
      onCancel={onClose}
    >
      <div class="form">
        <label for="token-name">What it is for</label>
        <input
          id="token-name"
          autoFocus
          autoComplete="off"
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
        />
        <label for="token-days">Valid for how many days; empty for ever</label>
        <input
          id="token-days"
          type="number"
          min={1}
          value={days}
          onInput={(event) => setDays(event.currentTarget.value)}
        />
        {error && <ErrorBox error={error} />}
      </div>
    </Confirm>
  );
}
