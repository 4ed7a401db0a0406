import { useEffect, useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { api, type ApiError, body, type Session, type Turn } from '../api/client.js';
import {
  ActionButton,
  Confirm,
  Elapsed,
  ErrorBox,
  Id,
  Status,
  Time,
} from '../components/basics.js';
import { readAgent } from '../lib/agents-store.js';
import { allTokens, cost, rough } from '../lib/format.js';
import { useLoaded } from '../lib/hooks.js';
import { literal, plain } from '../lib/untrusted.js';

type Action = 'terminate' | 'delete';

/** Why an action is not possible now, for its disabled button. */
function refusal(action: Action, { status }: Session): string | undefined {
  if (action === 'delete') {
    return status === 'pending' || status === 'running'
      ? 'Terminate the session first: an active session cannot be deleted'
      : undefined;
  }
  if (status === 'terminated') return 'The session is already terminated';
  return status === 'failed' ? 'The session has already failed' : undefined;
}

/** What a session is, how it is doing, and what can be done with it. */
export function SessionHeader(props: {
  session: Session;
  turns: readonly Turn[];
  back: string;
  onChanged: () => void;
}) {
  const { session, turns } = props;
  const [, navigate] = useLocation();
  const [asking, setAsking] = useState<Action>();
  const [error, setError] = useState<ApiError>();
  const { data: agent } = useLoaded(session.agent_id, () => readAgent(session.agent_id));
  const turn = turns.at(-1);
  // What was refused in one state says nothing about the next one.
  useEffect(() => setError(undefined), [session.status]);
  const act = async (action: Action): Promise<void> => {
    setAsking(undefined);
    setError(undefined);
    const params = { path: { id: session.id } };
    try {
      if (action === 'terminate') await body(api.POST('/sessions/{id}/terminate', { params }));
      else await body(api.DELETE('/sessions/{id}/delete', { params }));
      props.onChanged();
      if (action === 'delete') navigate(props.back);
    } catch (reason) {
      setError(reason as ApiError);
    }
  };
  const button = (action: Action, label: string) => (
    <ActionButton
      label={label}
      refusal={refusal(action, session)}
      onClick={() => setAsking(action)}
    />
  );
  return (
    <header class="session-header">
      <div class="toolbar">
        <Link href={props.back} class="back" aria-label="Back to the sessions">
          ←
        </Link>
        <h2>
          <Link href={`/agents/${session.agent_id}`}>{literal(agent?.name ?? '…')}</Link>
        </h2>
        <Status status={session.status} />
        <span class="grow" />
        {button('terminate', 'Terminate')}
        {button('delete', 'Delete')}
      </div>
      <dl class="facts">
        <Fact name="Session">
          <Id id={session.id} />
        </Fact>
        <Fact name="Agent">
          {agent?.model ?? session.provider} · v{session.agent_version}
        </Fact>
        {session.environment_id !== null && (
          <Fact name="Environment">
            <Link href={`/environments/${session.environment_id}`} title={session.environment_id}>
              {session.environment_id.slice(0, 8)}
            </Link>{' '}
            · v{session.environment_version}
          </Fact>
        )}
        <Fact name="Started">
          <Time at={session.created_at} />
        </Fact>
        {turn && (
          <Fact name={turn.turn_number === 1 ? 'Duration' : `Turn ${turn.turn_number}`}>
            <Elapsed from={turn.started_at ?? turn.created_at} to={turn.ended_at} />
          </Fact>
        )}
        {session.usage.requests > 0 && (
          <Fact name="Usage">
            {rough(allTokens(session.usage))} tokens · {cost(session.usage.cost_usd)}
          </Fact>
        )}
        {session.exit_code !== null && <Fact name="Exit code">{session.exit_code}</Fact>}
      </dl>
      {session.error !== null && <p class="failure">{plain(session.error)}</p>}
      {error && <ErrorBox error={error} />}
      {asking === 'terminate' && (
        <Confirm
          title="Terminate this session?"
          action="Terminate"
          danger
          onConfirm={() => void act('terminate')}
          onCancel={() => setAsking(undefined)}
        >
          <p>
            The agent is stopped and its sandbox is removed with all files in it. A terminated
            session cannot be continued.
          </p>
        </Confirm>
      )}
      {asking === 'delete' && (
        <Confirm
          title="Delete this session?"
          action="Delete"
          danger
          onConfirm={() => void act('delete')}
          onCancel={() => setAsking(undefined)}
        >
          <p>Its turns, prompts, output and files are deleted for good.</p>
        </Confirm>
      )}
    </header>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
