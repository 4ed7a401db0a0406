import { lazy, Suspense } from 'preact/compat';
import { useEffect, useState } from 'preact/hooks';
import { Link, Route, Router, Switch, useLocation } from 'wouter-preact';
import { type ApiError, CONSOLE_PATH, onSignedOut, signIn, type SignedIn } from './api/client.js';
import { ErrorBox } from './components/basics.js';
import { ShortcutHelp } from './components/shortcut-help.js';
import { NewSessionPage } from './pages/new-session.js';
import { SessionsPage } from './pages/sessions.js';
import { ResourcesPage } from './pages/resources.js';
import { AGENTS } from './resources/agents.js';
import { ENVIRONMENTS } from './resources/environments.js';
import { SignInPage } from './pages/sign-in.js';

// Most people never see it.
const SystemPage = lazy(() => import('./system/system-page.js'));

const NOBODY: SignedIn = { user: null };

/** The console: the sign-in page, or the page that the address names. */
export function App() {
  const [viewer, setViewer] = useState<SignedIn>();
  const [error, setError] = useState<ApiError>();
  useEffect(() => {
    onSignedOut(() => setViewer(NOBODY));
    signIn('GET')
      .then(setViewer)
      .catch((reason: unknown) => setError(reason as ApiError));
  }, []);
  if (error) return <ErrorBox error={error} retry={() => location.reload()} />;
  if (!viewer) return <p class="quiet centred">Signing in…</p>;
  if (!viewer.user) return <SignInPage onSignedIn={setViewer} />;
  return (
    <Router base={CONSOLE_PATH}>
      <Frame user={viewer.user} onSignedOut={() => setViewer(NOBODY)} />
    </Router>
  );
}

const PLACES = [
  ['/', 'Sessions'],
  ['/agents', 'Agents'],
  ['/environments', 'Environments'],
] as const;

interface FrameProps {
  user: NonNullable<SignedIn['user']>;
  onSignedOut: () => void;
}

function Frame({ user: { name: user, operator }, onSignedOut: leave }: FrameProps) {
  const [path] = useLocation();
  const places = operator ? [...PLACES, ['/system', 'System'] as const] : PLACES;
  const isAt = (place: string): boolean =>
    place === '/' ? path === '/' || path.startsWith('/sessions') : path.startsWith(place);
  const signOut = (): void => {
    void signIn('DELETE').finally(leave);
  };
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header class="top">
        <Link href="/" class="brand" aria-label="Console">
          <span aria-hidden="true">❯_</span> <b class="word">Console</b>
        </Link>
        <nav aria-label="Pages">
          {places.map(([place, name]) => (
            <Link key={place} href={place} aria-current={isAt(place) ? 'page' : undefined}>
              {name}
            </Link>
          ))}
        </nav>
        <span class="viewer" title="The user of your access token">
          {user}
        </span>
        <button type="button" class="plain" onClick={signOut}>
          Sign out
        </button>
      </header>
      <Switch>
        <Route path="/">
          <SessionsPage />
        </Route>
        <Route path="/sessions/new">
          <NewSessionPage />
        </Route>
        <Route path="/agents/:id?">
          {({ id }) => <ResourcesPage key="agents" kind={AGENTS} id={id} />}
        </Route>
        <Route path="/environments/:id?">
          {({ id }) => <ResourcesPage key="environments" kind={ENVIRONMENTS} id={id} />}
        </Route>
        {operator && (
          <Route path="/system/:view?">
            {({ view }) => (
              <Suspense fallback={<p class="quiet padded">Loading the page…</p>}>
                <SystemPage {...(view !== undefined && { view })} />
              </Suspense>
            )}
          </Route>
        )}
        <Route path="/sessions/:id">{({ id }) => <SessionsPage id={id} />}</Route>
        <Route>
          <main id="main" class="single">
            <h1>There is no such page</h1>
            <p>
              <Link href="/">Go to the sessions</Link>
            </p>
          </main>
        </Route>
      </Switch>
      <ShortcutHelp />
    </>
  );
}
