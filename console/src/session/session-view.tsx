import { lazy, Suspense } from 'preact/compat';
import { useEffect, useReducer, useState } from 'preact/hooks';
import { Link, useLocation, useSearch } from 'wouter-preact';
import { api, body, type Session, type Turn } from '../api/client.js';
import { ErrorBox } from '../components/basics.js';
import { useLoaded, useNow } from '../lib/hooks.js';
import { useKeys } from '../lib/keyboard.js';
import { plain } from '../lib/untrusted.js';
import { ChangesView } from './changes-view.js';
import { FilesView } from './files-view.js';
import { PromptBox } from './prompt-box.js';
import { RawEvents } from './raw-events.js';
import { SessionHeader } from './session-header.js';
import { SessionLog } from './session-log.js';
import { Timeline } from './timeline.js';
import { TranscriptView } from './transcript.js';
import { TurnsView } from './turns-view.js';

const Terminal = lazy(() => import('../components/terminal.js'));

const REFRESH_MS = 2_000;
/** A connection that is back sooner is nobody's concern. */
const SILENT_MS = 5_000;

const isActive = (session: Session | undefined): boolean =>
  session?.status === 'pending' || session?.status === 'running';

/** Members of the address that belong to one view. */
export const OF_VIEWS = ['view', 'file', 'turn'] as const;

interface Details {
  session: Session;
  turns: Turn[];
}

async function read(id: string, signal: AbortSignal): Promise<Details> {
  const params = { path: { id } };
  const [session, turns] = await Promise.all([
    body(api.GET('/sessions/{id}', { params, signal })),
    body(api.GET('/sessions/{id}/turns', { params, signal })),
  ]);
  return { session, turns: turns.data };
}

/** One session: what it is, what it did and does, and what can be done about it. */
export function SessionView(props: { id: string; back: string; onChanged: () => void }) {
  const { id } = props;
  const [path, navigate] = useLocation();
  const search = new URLSearchParams(useSearch());
  const [active, setActive] = useState(true);
  const { data, error, reload } = useLoaded(
    id,
    (signal) => read(id, signal),
    active ? REFRESH_MS : undefined,
  );
  const [log] = useState(
    () =>
      new SessionLog(id, () => {
        reload();
        props.onChanged();
      }),
  );
  const [, redraw] = useReducer((value: number) => value + 1, 0);
  useEffect(() => {
    const unsubscribe = log.subscribe(() => redraw(undefined));
    log.start();
    return () => {
      unsubscribe();
      log.stop();
    };
  }, [log]);
  const session = data?.session;
  const turns = data?.turns ?? [];
  useEffect(() => {
    if (!session) return;
    setActive(isActive(session));
    // A further turn, from here or from somewhere else; or a stream that ended while the session goes on.
    if (isActive(session)) log.start();
  }, [log, session]);

  const shell = session?.provider === 'shell';
  const views = ['transcript', ...(shell ? ['terminal'] : []), 'files', 'changes', 'turns', 'raw'];
  const wanted = search.get('view') ?? '';
  const view = views.includes(wanted) ? wanted : shell ? 'terminal' : 'transcript';
  const addressOf = (name: string, members: Readonly<Record<string, string>> = {}): string => {
    const next = new URLSearchParams(search);
    for (const member of OF_VIEWS) next.delete(member);
    next.set('view', name);
    for (const [member, value] of Object.entries(members)) {
      if (value !== '') next.set(member, value);
    }
    return `${path}?${next.toString()}`;
  };
  useKeys(
    Object.fromEntries(
      views.map((name, index) => [String(index + 1), () => navigate(addressOf(name))]),
    ),
  );
  if (error && !data) {
    return (
      <main id="main" class="detail">
        <ErrorBox error={error} retry={reload} />
        <p class="padded">
          <Link href={props.back}>Back to the sessions</Link>
        </p>
      </main>
    );
  }
  if (!session) {
    return (
      <main id="main" class="detail">
        <p class="quiet padded">Loading the session…</p>
      </main>
    );
  }
  const changed = (): void => {
    reload();
    props.onChanged();
  };
  return (
    <main id="main" class="detail">
      <SessionHeader session={session} turns={turns} back={props.back} onChanged={changed} />
      <Waiting session={session} log={log} />
      <LostConnection log={log} />
      {log.error && <ErrorBox error={log.error} retry={() => location.reload()} />}
      <Timeline log={log} />
      <nav class="tabs" aria-label="Views of the session">
        {views.map((name) => (
          <Link key={name} href={addressOf(name)} aria-current={name === view ? 'page' : undefined}>
            {TITLES[name]}
          </Link>
        ))}
      </nav>
      <div class="view">
        {view === 'transcript' && <TranscriptView log={log} turns={turns} />}
        {view === 'terminal' && (
          <Suspense fallback={<p class="quiet padded">Loading the terminal…</p>}>
            <Terminal log={log} />
          </Suspense>
        )}
        {view === 'raw' && <RawEvents log={log} sessionId={id} />}
        {view === 'turns' && <TurnsView session={session} turns={turns} />}
        {view === 'files' && (
          <FilesView
            sessionId={id}
            file={search.get('file') ?? ''}
            addressOf={(file) => addressOf('files', { file })}
          />
        )}
        {view === 'changes' && (
          <ChangesView
            session={session}
            turn={search.get('turn') ?? ''}
            addressOf={(turn) => addressOf('changes', { turn })}
          />
        )}
      </div>
      <PromptBox session={session} onSent={changed} />
    </main>
  );
}

const TITLES: Readonly<Record<string, string>> = {
  transcript: 'Transcript',
  terminal: 'Terminal',
  files: 'Files',
  changes: 'Changes',
  raw: 'Raw events',
  turns: 'Turns and usage',
};

/** Why nothing is happening yet. */
function Waiting({ session, log }: { session: Session; log: SessionLog }) {
  if (!isActive(session)) return null;
  const reason =
    session.progress ??
    log.progress ??
    (session.status === 'pending' ? 'Waiting for a worker' : undefined);
  if (reason === undefined || reason === null) return null;
  return (
    <p class="waiting" role="status">
      <span class="pulse" aria-hidden="true" /> {plain(reason)}
    </p>
  );
}

/** Only what the reader should know: a connection that stays away. */
function LostConnection({ log }: { log: SessionLog }) {
  const { connection } = log;
  const lost = connection.state === 'lost';
  useNow(lost);
  if (!lost || performance.now() - connection.since < SILENT_MS) return null;
  return (
    <p class="waiting bad" role="status">
      The connection is lost. Trying again; nothing will be missed.
    </p>
  );
}
