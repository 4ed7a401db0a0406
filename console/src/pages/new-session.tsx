import { useState } from 'preact/hooks';
import { Link, useLocation, useSearch } from 'wouter-preact';
import { api, type ApiError, body } from '../api/client.js';
import { ErrorBox } from '../components/basics.js';
import { useAgents } from '../lib/agents-store.js';
import { useLoaded, useTitle } from '../lib/hooks.js';
import { literal } from '../lib/untrusted.js';

const DEFAULT_ENVIRONMENT = 'default';
const NO_ENVIRONMENT = 'none';

/** Starts a session: an agent, a prompt, and where to run. */
export function NewSessionPage() {
  const [, navigate] = useLocation();
  const chosen = new URLSearchParams(useSearch()).get('agent') ?? '';
  const { list: agents, loaded } = useAgents();
  const { data: environments } = useLoaded(
    'environments',
    async (signal) => (await body(api.GET('/environments', { signal }))).data,
  );
  const [agentId, setAgentId] = useState(chosen);
  const [prompt, setPrompt] = useState('');
  const [environment, setEnvironment] = useState(DEFAULT_ENVIRONMENT);
  const [timeout, setTimeoutSeconds] = useState('');
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  useTitle('New session');
  const agent = agentId === '' ? agents[0] : agents.find(({ id }) => id === agentId);
  const unknown = loaded && agentId !== '' && !agent;
  const submit = async (): Promise<void> => {
    if (!agent || busy) return;
    setBusy(true);
    setError(undefined);
    try {
      const { id } = await body(
        api.POST('/sessions', {
          body: {
            agent_id: agent.id,
            ...(prompt !== '' && { prompt }),
            ...(timeout !== '' && { timeout: Number(timeout) }),
            ...(environment !== DEFAULT_ENVIRONMENT && {
              environment_id: environment === NO_ENVIRONMENT ? null : environment,
            }),
          },
        }),
      );
      navigate(`/sessions/${id}`);
    } catch (reason) {
      setError(reason as ApiError);
      setBusy(false);
    }
  };
  return (
    <main id="main" class="single">
      <h1>New session</h1>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void submit();
        }}
      >
        {unknown && (
          <p class="error-box" role="alert">
            There is no agent <code>{literal(agentId)}</code>, or it is archived. Choose another
            one.
          </p>
        )}
        <label for="agent">Agent</label>
        <select
          id="agent"
          value={agent?.id ?? ''}
          onChange={(event) => setAgentId(event.currentTarget.value)}
        >
          {!agent && <option value="">Choose an agent</option>}
          {agents.map(({ id, name, model }) => (
            <option key={id} value={id}>
              {name} ({model})
            </option>
          ))}
        </select>
        <label for="prompt">
          {agent?.provider === 'shell' ? 'Prompt, which is a bash script for this agent' : 'Prompt'}
        </label>
        <textarea
          id="prompt"
          rows={8}
          value={prompt}
          autoFocus
          onInput={(event) => setPrompt(event.currentTarget.value)}
        />
        <div class="pair">
          <div>
            <label for="environment">Environment</label>
            <select
              id="environment"
              value={environment}
              onChange={(event) => setEnvironment(event.currentTarget.value)}
            >
              <option value={DEFAULT_ENVIRONMENT}>The agent’s default</option>
              <option value={NO_ENVIRONMENT}>None</option>
              {environments?.map(({ id, name }) => (
                <option key={id} value={id}>
                  {name ?? id}
                </option>
              ))}
            </select>
          </div>
          <div>
            <label for="timeout">Timeout of a turn in seconds</label>
            <input
              id="timeout"
              type="number"
              min={1}
              max={86400}
              placeholder="3600"
              value={timeout}
              onInput={(event) => setTimeoutSeconds(event.currentTarget.value)}
            />
          </div>
        </div>
        {error && <ErrorBox error={error} />}
        <p class="actions">
          <Link href="/" class="button">
            Cancel
          </Link>
          <button type="submit" class="primary" disabled={busy || !agent}>
            {busy ? 'Starting…' : 'Start the session'}
          </button>
        </p>
      </form>
    </main>
  );
}
