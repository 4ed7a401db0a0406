import { Link, useSearch } from 'wouter-preact';
import { api, body, type Schemas } from '../api/client.js';
import { Empty, Id, Time } from '../components/basics.js';
import type { Column } from '../components/data-table.js';
import { exact } from '../lib/format.js';
import { literal } from '../lib/untrusted.js';
import { AskingButton, SystemTable, useSystemList } from './parts.js';

type Token = Schemas['AccessToken'];

/** The tokens of all users, or of the one that the address names. Never their secrets. */
export function TokensView() {
  const user = new URLSearchParams(useSearch()).get('user') ?? '';
  const pages = useSystemList(`tokens ${user}`, (limit, signal) =>
    body(
      api.GET('/operator/tokens', {
        signal,
        params: { query: { limit, ...(user !== '' && { user }) } },
      }),
    ),
  );
  const columns: readonly Column<Token>[] = [
    {
      head: 'For',
      cell: ({ name }) => (name === '' ? <span class="quiet">no name</span> : literal(name)),
    },
    { head: 'User', cell: (token) => literal(token.user) },
    { head: 'Id', cell: ({ id }) => <Id id={id} /> },
    { head: 'State', cell: (token) => <State token={token} /> },
    { head: 'Created', cell: ({ created_at: at }) => <Time at={at} /> },
    {
      head: 'Last used',
      cell: ({ last_used_at: at }) =>
        at === null ? <span class="quiet">never</span> : <Time at={at} />,
    },
    {
      head: 'Expires',
      cell: ({ expires_at: at }) => (at === null ? 'never' : <Day at={at} />),
    },
    { head: '', cell: (token) => <Revoke token={token} onDone={pages.reload} /> },
  ];
  return (
    <>
      {user !== '' && (
        <p class="toolbar filters">
          <span class="grow">Tokens of {literal(user)}</span>
          <Link href="/system/tokens" class="button">
            Show those of all users
          </Link>
        </p>
      )}
      <SystemTable
        pages={pages}
        what="tokens"
        empty={
          <Empty title="There are no tokens">
            <Link href="/system/users" class="button">
              Issue one to a user
            </Link>
          </Empty>
        }
        columns={columns}
      />
    </>
  );
}

function State({ token }: { token: Token }) {
  const [state, look] = stateOf(token);
  return <span class={`status ${look}`}>{state}</span>;
}

function Revoke({ token, onDone }: { token: Token; onDone: () => void }) {
  return (
    <AskingButton
      label="Revoke"
      title={`Revoke a token of ${literal(token.user)}?`}
      refusal={token.revoked_at === null ? undefined : 'It is revoked already'}
      run={() =>
        body(api.POST('/operator/tokens/{id}/revoke', { params: { path: { id: token.id } } }))
      }
      onDone={onDone}
    >
      <p>
        Whoever uses it is refused within five seconds. It cannot be given back, only replaced by a
        new one. Sessions that run go on.
      </p>
    </AskingButton>
  );
}

/** @returns a sign with a word, and its colour. */
function stateOf({ revoked_at: revoked, expires_at: expires }: Token) {
  if (revoked !== null) return ['■ revoked', 'terminated'] as const;
  const past = expires !== null && Date.parse(expires) <= Date.now();
  return past ? (['■ expired', 'terminated'] as const) : (['✓ valid', 'completed'] as const);
}

/** A day in the viewer's time zone, with the exact time on hover. */
function Day({ at }: { at: string }) {
  const time = new Date(at);
  return (
    <time dateTime={at} title={exact(time.getTime())}>
      {time.toLocaleDateString(undefined, { dateStyle: 'medium' })}
    </time>
  );
}
