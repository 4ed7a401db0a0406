import { useState } from 'preact/hooks';
import { type ApiError, signIn, type SignedIn } from '../api/client.js';
import { ErrorBox } from '../components/basics.js';
import { useTitle } from '../lib/hooks.js';

/** Takes an access token once. The browser then has a cookie that no script can read; the token is not kept. */
export function SignInPage({ onSignedIn }: { onSignedIn: (viewer: SignedIn) => void }) {
  const [token, setToken] = useState('');
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  useTitle('Sign in');
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      onSignedIn(await signIn('POST', token));
    } catch (reason) {
      setError(reason as ApiError);
      setBusy(false);
    }
  };
  return (
    <main class="sign-in">
      <h1>
        <span aria-hidden="true">❯_</span> Console
      </h1>
      <form onSubmit={(event) => void submit(event)}>
        <label for="token">Access token</label>
        <input
          id="token"
          type="password"
          autoComplete="off"
          spellcheck={false}
          placeholder="ast_…"
          value={token}
          required
          autoFocus
          onInput={(event) => setToken(event.currentTarget.value)}
        />
        <button type="submit" class="primary" disabled={busy || token.trim() === ''}>
          {busy ? 'Signing in…' : 'Sign in'}
        </button>
      </form>
      {error && <ErrorBox error={error} />}
      <p class="quiet">
        Operators create tokens with <code>npm run cli -- token create --user NAME</code>. The token
        is exchanged for a cookie that scripts cannot read, and stays signed in for 7 days.
      </p>
    </main>
  );
}
