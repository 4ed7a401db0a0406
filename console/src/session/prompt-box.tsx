import { useEffect, useState } from 'preact/hooks';
import { api, type ApiError, body, type Session } from '../api/client.js';
import { ErrorBox } from '../components/basics.js';

const REASONS: Readonly<Record<Session['status'], string | undefined>> = {
  pending: 'A turn is waiting already. You can prompt again when it is done.',
  running: 'The agent is working. You can prompt again when it is done.',
  completed: undefined,
  failed: 'This session has failed and cannot be continued. Start a new one.',
  terminated: 'This session was terminated and cannot be continued. Start a new one.',
};

/** The next turn of a completed session. */
export function PromptBox({ session, onSent }: { session: Session; onSent: () => void }) {
  const [prompt, setPrompt] = useState('');
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const why = REASONS[session.status];
  // What was refused in one state says nothing about the next one.
  useEffect(() => setError(undefined), [session.status]);
  if (why !== undefined) return <p class="prompt-box quiet">{why}</p>;
  const send = async (): Promise<void> => {
    if (prompt === '' || busy) return;
    setBusy(true);
    setError(undefined);
    try {
      await body(
        api.POST('/sessions/{id}/prompt', {
          params: { path: { id: session.id } },
          body: { prompt },
        }),
      );
      setPrompt('');
      onSent();
    } catch (reason) {
      setError(reason as ApiError);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form
      class="prompt-box"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      {error && <ErrorBox error={error} />}
      <div class="prompt-line">
        <textarea
          rows={2}
          aria-label="Prompt for the next turn"
          placeholder={session.provider === 'shell' ? 'The next script…' : 'The next prompt…'}
          value={prompt}
          onInput={(event) => {
            setPrompt(event.currentTarget.value);
            setError(undefined);
          }}
          onKeyDown={(event) => {
            if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void send();
            if (event.key === 'Escape') event.currentTarget.blur();
          }}
        />
        <button type="submit" class="primary" disabled={busy || prompt === ''} title="Ctrl+Enter">
          {busy ? 'Sending…' : 'Send'}
        </button>
      </div>
    </form>
  );
}
