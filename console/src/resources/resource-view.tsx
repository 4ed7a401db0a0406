import { useState } from 'preact/hooks';
import { Link, useLocation, useSearch } from 'wouter-preact';
import type { ApiError } from '../api/client.js';
import { ActionButton, Confirm, ErrorBox, Id, Time } from '../components/basics.js';
import { duration } from '../lib/format.js';
import { useLoaded } from '../lib/hooks.js';
import { literal, plain } from '../lib/untrusted.js';
import type { Kind, Resource, ResourceAction } from './kind.js';
import { ResourceForm } from './resource-form.js';
import { VersionsView } from './versions-view.js';

const TABS = [
  ['definition', 'Definition'],
  ['edit', 'Edit'],
  ['versions', 'Versions'],
] as const;

/** While an environment is built. */
const REFRESH_MS = 5_000;

/** How the sandbox's layer of an environment is doing. Only services that build environments say so. */
interface Build {
  status: string;
  started_at?: string | null;
  duration_ms?: number | null;
  error?: string | null;
}

/** One agent or environment: what it is, a form that changes it, and its versions. */
export function ResourceView<T extends Resource>(props: {
  kind: Kind<T>;
  id: string;
  back: string;
  onChanged: () => void;
}) {
  const { kind, id, back } = props;
  const [path, navigate] = useLocation();
  const search = new URLSearchParams(useSearch());
  const { data, error, reload } = useLoaded(id, (signal) => kind.read(id, signal), REFRESH_MS);
  const [asking, setAsking] = useState<ResourceAction<T>>();
  const [failed, setFailed] = useState<ApiError>();
  if (!data) {
    return (
      <main id="main" class="detail">
        {error ? (
          <ErrorBox error={error} retry={reload} />
        ) : (
          <p class="quiet padded">Loading the {kind.singular}…</p>
        )}
        <p class="padded">
          <Link href={back}>Back to the {kind.plural.toLowerCase()}</Link>
        </p>
      </main>
    );
  }
  const view = TABS.find(([name]) => name === search.get('view'))?.[0] ?? 'definition';
  const addressOf = (members: Readonly<Record<string, string>>): string => {
    const next = new URLSearchParams(members);
    const query = search.get('q');
    if (query !== null) next.set('q', query);
    return next.size === 0 ? path : `${path}?${next.toString()}`;
  };
  const act = async (action: ResourceAction<T>): Promise<void> => {
    setAsking(undefined);
    setFailed(undefined);
    try {
      await action.run(id);
      props.onChanged();
      if (action.removes) navigate(back);
      else reload();
    } catch (reason) {
      setFailed(reason as ApiError);
    }
  };
  return (
    <main id="main" class="detail">
      <header class="session-header">
        <div class="toolbar">
          <Link href={back} class="back" aria-label={`Back to the ${kind.plural.toLowerCase()}`}>
            ←
          </Link>
          <h2>{literal(data.name ?? `Unnamed ${kind.singular}`)}</h2>
          {data.archived_at !== null && <span class="status terminated">■ archived</span>}
          <span class="grow" />
          {kind.path === '/agents' && data.archived_at === null && (
            <Link href={`/sessions/new?agent=${id}`} class="button small">
              New session
            </Link>
          )}
          {kind.actions.map((action) => (
            <ActionButton
              key={action.label}
              label={action.label}
              refusal={action.refusal(data)}
              onClick={() => setAsking(action)}
            />
          ))}
        </div>
        <dl class="facts">
          <div>
            <dt>Id</dt>
            <dd>
              <Id id={id} />
            </dd>
          </div>
          <div>
            <dt>Version</dt>
            <dd>{data.version}</dd>
          </div>
          <div>
            <dt>Created</dt>
            <dd>
              <Time at={data.created_at} />
            </dd>
          </div>
          <div>
            <dt>Changed</dt>
            <dd>
              <Time at={data.updated_at} />
            </dd>
          </div>
        </dl>
        {failed && <ErrorBox error={failed} />}
      </header>
      <BuildStatus build={(data as { build?: Build | null }).build} />
      <nav class="tabs" aria-label={`Views of the ${kind.singular}`}>
        {TABS.map(([name, label]) => (
          <Link
            key={name}
            href={addressOf(name === 'definition' ? {} : { view: name })}
            aria-current={name === view ? 'page' : undefined}
          >
            {label}
          </Link>
        ))}
      </nav>
      <div class="view">
        {view === 'definition' && <Definition members={kind.membersOf(data)} />}
        {view === 'edit' && (
          <div class="scroll padded">
            {data.archived_at === null ? (
              <ResourceForm
                kind={kind}
                base={data}
                cancel={addressOf({})}
                onSaved={() => {
                  reload();
                  props.onChanged();
                  navigate(addressOf({ view: 'versions' }));
                }}
              />
            ) : (
              <p class="quiet">An archived {kind.singular} cannot be changed.</p>
            )}
          </div>
        )}
        {view === 'versions' && (
          <VersionsView
            kind={kind}
            resource={data}
            from={search.get('from') ?? ''}
            to={search.get('to') ?? ''}
            addressOf={(from, to) =>
              addressOf({ view: 'versions', from: String(from), to: String(to) })
            }
          />
        )}
      </div>
      {asking && (
        <Confirm
          title={asking.title}
          action={asking.label}
          danger
          onConfirm={() => void act(asking)}
          onCancel={() => setAsking(undefined)}
        >
          <p>{asking.text}</p>
        </Confirm>
      )}
    </main>
  );
}

function Definition({ members }: { members: Readonly<Record<string, string>> }) {
  return (
    <dl class="scroll padded definition">
      {Object.entries(members).map(([name, text]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            {text === '' ? (
              <span class="quiet">none</span>
            ) : text.includes('\n') || text.length > 100 ? (
              <pre class="output">{literal(text)}</pre>
            ) : (
              literal(text)
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function BuildStatus({ build }: { build: Build | null | undefined }) {
  if (!build) return null;
  return (
    <div class="waiting" role="status">
      Build: <strong class={build.status === 'failed' ? 'bad' : ''}>{plain(build.status)}</strong>
      {typeof build.started_at === 'string' && (
        <>
          {' '}
          · started <Time at={build.started_at} />
        </>
      )}
      {typeof build.duration_ms === 'number' && ` · took ${duration(build.duration_ms)}`}
      {typeof build.error === 'string' && <pre class="output bad">{plain(build.error)}</pre>}
    </div>
  );
}
