import { Link, useLocation, useSearch } from 'wouter-preact';
import { Empty, Time } from '../components/basics.js';
import { ListPage } from '../components/list-page.js';
import { shortId } from '../lib/format.js';
import { useTitle } from '../lib/hooks.js';
import { usePages } from '../lib/pages.js';
import type { Kind, Resource } from '../resources/kind.js';
import { literal } from '../lib/untrusted.js';
import { ResourceForm } from '../resources/resource-form.js';
import { ResourceView } from '../resources/resource-view.js';

/** How many are shown at first. */
const FIRST = 100;
const REFRESH_MS = 10_000;
const NEW = 'new';

/** All agents or environments, newest first, and beside them the one that the address names. */
export function ResourcesPage<T extends Resource>({ kind, id }: { kind: Kind<T>; id?: string }) {
  const [, navigate] = useLocation();
  const parameters = new URLSearchParams(useSearch());
  const query = parameters.get('q') ?? '';
  const suffix = query === '' ? '' : `?${new URLSearchParams({ q: query }).toString()}`;
  const pages = usePages<T>(
    kind.path,
    (limit, signal) => kind.list({ limit }, signal),
    REFRESH_MS,
    {
      first: FIRST,
      older: (after, limit) => kind.list({ limit, after }),
    },
  );
  const { data, reload } = pages;
  useTitle(
    id === undefined
      ? kind.plural
      : id === NEW
        ? `New ${kind.singular}`
        : `${data?.data.find((each) => each.id === id)?.name ?? shortId(id)} · ${kind.plural}`,
  );
  const back = `${kind.path}${suffix}`;
  const needle = query.toLowerCase();
  const found = (data?.data ?? []).filter(
    (each) =>
      needle === '' || each.id.includes(needle) || each.name?.toLowerCase().includes(needle),
  );
  return (
    <ListPage
      title={kind.plural}
      create={{ what: kind.singular, path: `${kind.path}/${NEW}` }}
      search={{
        label: 'Search by id or name',
        value: query,
        set: (value) =>
          navigate(
            value === ''
              ? kind.path
              : `${kind.path}?${new URLSearchParams({ q: value }).toString()}`,
            { replace: true },
          ),
      }}
      pages={pages}
      items={found}
      empty={
        <Empty
          title={query === '' ? `There are no ${kind.plural.toLowerCase()} yet` : 'None matches'}
        >
          <p class="quiet">{kind.purpose}</p>
          {query === '' ? (
            <Link href={`${kind.path}/${NEW}`} class="button">
              Create the first one
            </Link>
          ) : (
            <Link href={kind.path} class="button">
              Show all
            </Link>
          )}
        </Empty>
      }
      class="resource-list"
      addressOf={(each) => `${kind.path}/${each.id}${suffix}`}
      row={(each) => (
        <>
          <span class="what name">{literal(each.name ?? shortId(each.id))}</span>
          <span class="quiet number">v{each.version}</span>
          <span class="why quiet">{kind.summary(each)}</span>
          <span class="when quiet">
            <Time at={each.updated_at} />
          </span>
        </>
      )}
      current={id}
      back={back}
    >
      {id === NEW && (
        <main id="main" class="detail">
          <div class="scroll padded">
            <h2>New {kind.singular}</h2>
            <ResourceForm
              kind={kind}
              cancel={back}
              onSaved={(created) => {
                reload();
                navigate(`${kind.path}/${created.id}`);
              }}
            />
          </div>
        </main>
      )}
      {id !== undefined && id !== NEW && (
        <ResourceView key={id} kind={kind} id={id} back={back} onChanged={reload} />
      )}
    </ListPage>
  );
}
