import { Link, useLocation, useSearch } from 'wouter-preact';
import { api, body, type Session } from '../api/client.js';
import { Empty, Status, Time } from '../components/basics.js';
import { ListPage } from '../components/list-page.js';
import { readAgent, useAgents } from '../lib/agents-store.js';
import { allTokens, cost, rough, shortId } from '../lib/format.js';
import { useLoaded, useTitle } from '../lib/hooks.js';
import { usePages } from '../lib/pages.js';
import { literal, plain } from '../lib/untrusted.js';
import { OF_VIEWS, SessionView } from '../session/session-view.js';

const STATUSES = ['pending', 'running', 'completed', 'failed', 'terminated'] as const;
const REFRESH_MS = 2_500;
/** The most sessions whose reason to wait is asked for, each by a request of its own. */
const MOST_ASKED = 20;

/** The sessions, newest first, and beside them the one that the address names. */
export function SessionsPage({ id }: { id?: string }) {
  const search = useSearch();
  const [, navigate] = useLocation();
  const filters = new URLSearchParams(search);
  // Of the session beside the list, not of the list.
  for (const member of OF_VIEWS) filters.delete(member);
  const suffix = filters.size === 0 ? '' : `?${filters.toString()}`;
  const status = STATUSES.find((known) => known === filters.get('status'));
  const agentId = filters.get('agent') ?? '';
  const query = filters.get('q') ?? '';
  const { list: agents, nameOf } = useAgents();
  useTitle(id === undefined ? 'Sessions' : `Session ${shortId(id)}`);

  const set = (name: string, value: string): void => {
    const next = new URLSearchParams(filters);
    if (value === '') next.delete(name);
    else next.set(name, value);
    navigate(`/${next.size > 0 ? `?${next.toString()}` : ''}`, { replace: name === 'q' });
  };
  const list = (page: { limit: number; after?: string }, signal?: AbortSignal) =>
    body(
      api.GET('/sessions', {
        ...(signal && { signal }),
        params: {
          query: {
            ...page,
            ...(status && { status }),
            ...(agentId !== '' && { agent_id: agentId }),
          },
        },
      }),
    );
  const pages = usePages<Session>(
    `${status ?? ''} ${agentId}`,
    (limit, signal) => list({ limit }, signal),
    REFRESH_MS,
    { older: (after, limit) => list({ limit, after }) },
  );
  const needle = query.toLowerCase();
  const sessions = (pages.data?.data ?? []).filter(
    (session) =>
      needle === '' ||
      session.id.includes(needle) ||
      nameOf(session.agent_id).toLowerCase().includes(needle),
  );
  const waiting = sessions.filter(
    ({ status: state, progress }) => state === 'pending' && !progress,
  );
  const asking = new Set(waiting.slice(0, MOST_ASKED).map((session) => session.id));
  return (
    <ListPage
      title="Sessions"
      create={{ what: 'session', path: '/sessions/new' }}
      search={{
        label: 'Search by id or agent',
        value: query,
        set: (value) => set('q', value),
      }}
      filters={
        <>
          <select
            aria-label="Status"
            value={status ?? ''}
            onChange={(event) => set('status', event.currentTarget.value)}
          >
            <option value="">Any status</option>
            {STATUSES.map((known) => (
              <option key={known}>{known}</option>
            ))}
          </select>
          <select
            aria-label="Agent"
            value={agentId}
            onChange={(event) => set('agent', event.currentTarget.value)}
          >
            <option value="">Any agent</option>
            {agentId !== '' && !agents.some(({ id: known }) => known === agentId) && (
              <option value={agentId}>Agent {shortId(agentId)}, not in use any more</option>
            )}
            {agents.map((agent) => (
              <option key={agent.id} value={agent.id}>
                {agent.name}
              </option>
            ))}
          </select>
        </>
      }
      pages={pages}
      items={sessions}
      empty={
        <NoSessions
          filtered={suffix !== ''}
          searched={pages.more && query !== '' ? pages.data?.data.length : undefined}
          hasAgents={agents.length > 0}
        />
      }
      addressOf={(session) => `/sessions/${session.id}${suffix}`}
      row={(session) => (
        <>
          <Status status={session.status} />
          <span class="what">
            <AgentName id={session.agent_id} name={nameOf(session.agent_id)} />
            <span class="quiet"> {shortId(session.id)}</span>
          </span>
          <span class="when quiet">
            <Time at={session.created_at} />
          </span>
          <Why session={session} asks={asking.has(session.id)} />
        </>
      )}
      current={id}
      back={`/${suffix}`}
    >
      {id !== undefined && (
        <SessionView key={id} id={id} back={`/${suffix}`} onChanged={pages.reload} />
      )}
    </ListPage>
  );
}

function AgentName({ id, name }: { id: string; name: string }) {
  const { data } = useLoaded(name === '' ? id : undefined, () => readAgent(id));
  return <span class="name">{literal(name === '' ? (data?.name ?? '…') : name)}</span>;
}

/** @param asks whether to ask the service what the session waits for: lists do not say it */
function Why({ session, asks }: { session: Session; asks: boolean }) {
  const { id } = session;
  const { data } = useLoaded(
    asks ? id : undefined,
    (signal) => body(api.GET('/sessions/{id}', { signal, params: { path: { id } } })),
    REFRESH_MS,
  );
  const text = whyOf(data ?? session);
  return (
    <span class="why quiet" title={text}>
      {text}
    </span>
  );
}

/** What a session waits for, how it went wrong, or what it used. */
function whyOf({
  status,
  progress,
  error,
  exit_code: exit,
  turn_count: turns,
  usage,
}: Session): string {
  if (status === 'pending' || status === 'running') return plain(progress ?? '');
  if (error !== null) return plain(error);
  if (exit !== null && exit !== 0) return `Exit code ${exit}`;
  const parts = [turns > 1 ? `${turns} turns` : ''];
  const tokens = allTokens(usage);
  if (tokens > 0) parts.push(`${rough(tokens)} tokens`);
  if (usage.cost_usd !== null && usage.cost_usd > 0) parts.push(cost(usage.cost_usd));
  return parts.filter(Boolean).join(' · ');
}

function NoSessions(props: {
  filtered: boolean;
  /** How many of the sessions were searched, if there are more. */
  searched: number | undefined;
  hasAgents: boolean;
}) {
  if (props.filtered) {
    return (
      <Empty title="No session matches">
        {props.searched !== undefined && (
          <p class="quiet">
            Only the newest {props.searched} were searched. Load more to search those before.
          </p>
        )}
        <Link href="/" class="button">
          Show all sessions
        </Link>
      </Empty>
    );
  }
  return (
    <Empty title="There are no sessions yet">
      {props.hasAgents ? (
        <Link href="/sessions/new" class="button primary">
          Start the first one
        </Link>
      ) : (
        <>
          <p>A session runs an agent. Create an agent first.</p>
          <Link href="/agents/new" class="button primary">
            Create an agent
          </Link>
        </>
      )}
    </Empty>
  );
}
