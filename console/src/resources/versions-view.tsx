import { lazy, Suspense } from 'preact/compat';
import { useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { ErrorBox, Time } from '../components/basics.js';
import { useLoaded } from '../lib/hooks.js';
import type { Edit } from '../session/entries.js';
import type { Kind, Resource } from './kind.js';

const Diff = lazy(() => import('../components/diff.js'));

const PAGE = 50;
const MOST = 1_000;

/** The members in which two versions differ, as edits. */
export function differences<T extends Resource>(kind: Kind<T>, from: T, to: T): Edit[] {
  const before = kind.membersOf(from);
  const line = (text = ''): string => (text === '' ? '' : `${text}\n`);
  return Object.entries(kind.membersOf(to))
    .filter(([name, text]) => text !== before[name])
    .map(([name, text]) => ({ path: name, before: line(before[name]), after: line(text) }));
}

/** All versions, and what differs between two of them. */
export function VersionsView<T extends Resource>(props: {
  kind: Kind<T>;
  resource: T;
  /** Version numbers of the address; empty for the latest change. */
  from: string;
  to: string;
  addressOf: (from: number, to: number) => string;
}) {
  const { kind, resource } = props;
  const [, navigate] = useLocation();
  const [limit, setLimit] = useState(PAGE);
  const { data, error, reload } = useLoaded(
    `${resource.id} ${resource.version} ${limit}`,
    (signal) => kind.versions(resource.id, limit, signal),
  );
  if (error) return <ErrorBox error={error} retry={reload} />;
  if (!data) return <p class="quiet padded">Loading the versions…</p>;
  const versions = data.data;
  const newest = versions[0]?.version ?? 1;
  const to = Number(props.to) || newest;
  const from = Number(props.from) || Math.max(1, to - 1);
  const find = (number: number): T | undefined =>
    versions.find(({ version }) => version === number);
  const [older, newer] = [find(from), find(to)];
  const edits = older && newer ? differences(kind, older, newer) : undefined;
  const choice = (label: string, value: number, choose: (number: number) => string) => (
    <label>
      {label}{' '}
      <select
        value={value}
        onChange={(event) => navigate(choose(Number(event.currentTarget.value)))}
      >
        {versions.map(({ version }) => (
          <option key={version} value={version}>
            version {version}
          </option>
        ))}
      </select>
    </label>
  );
  return (
    <div class="scroll padded versions" tabIndex={0} role="region" aria-label="Versions">
      <p class="toolbar">
        {choice('Compare', from, (number) => props.addressOf(number, to))}
        {choice('with', to, (number) => props.addressOf(from, number))}
      </p>
      {from === to ? (
        <p class="quiet">
          {versions.length === 1
            ? 'There is only one version so far. Each change makes another one.'
            : 'Choose two versions to compare.'}
        </p>
      ) : !edits ? (
        <p class="quiet">Such a version is not among those that are loaded.</p>
      ) : edits.length === 0 ? (
        <p class="quiet">
          Nothing that can be shown differs. Values of secrets and variables are not shown.
        </p>
      ) : (
        <Suspense fallback={<p class="quiet">Loading the diff viewer…</p>}>
          <Diff edits={edits} />
        </Suspense>
      )}
      <table class="figures-table">
        <thead>
          <tr>
            <th>Version</th>
            <th>Saved</th>
            <th>Changed</th>
          </tr>
        </thead>
        <tbody>
          {versions.map((version, index) => {
            const previous = versions[index + 1];
            return (
              <tr key={version.version}>
                <td class="number">{version.version}</td>
                <td>
                  <Time at={version.created_at} />
                </td>
                <td>
                  {previous
                    ? differences(kind, previous, version)
                        .map(({ path }) => path)
                        .join(', ') || 'only what is not shown'
                    : version.version === 1
                      ? 'created'
                      : '…'}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {data.has_more && limit < MOST && (
        <button type="button" onClick={() => setLimit(Math.min(MOST, limit * 4))}>
          Load more
        </button>
      )}
    </div>
  );
}
