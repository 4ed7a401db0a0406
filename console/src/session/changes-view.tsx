import { lazy, Suspense } from 'preact/compat';
import { useEffect, useRef } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import {
  API_ROOT,
  api,
  body,
  errorOf,
  type Schemas,
  type Session,
  startOf,
} from '../api/client.js';
import { Copy, Empty, ErrorBox } from '../components/basics.js';
import { count, shortId } from '../lib/format.js';
import { useLoaded } from '../lib/hooks.js';
import { literal } from '../lib/untrusted.js';

const Diff = lazy(() => import('../components/diff.js'));

type Repository = Schemas['RepositoryChanges'];

/** The most of a patch that is read to be shown. The rest is for the download. */
const MOST_BYTES = 400_000;

const SIGNS: Readonly<Record<Schemas['FileChangeStatus'], string>> = {
  added: 'A',
  modified: 'M',
  deleted: 'D',
  renamed: 'R',
  type_changed: 'T',
};

/** How the repositories of a session differ from what was cloned: now, or at the end of a turn. */
export function ChangesView(props: {
  session: Session;
  /** The number of a turn; empty for now. */
  turn: string;
  addressOf: (turn: string) => string;
}) {
  const { session } = props;
  const [, navigate] = useLocation();
  const turn = /^[1-9]\d{0,8}$/.test(props.turn) ? Number(props.turn) : undefined;
  const { data, error, reload } = useLoaded(`${session.id} ${turn ?? ''}`, async (signal) =>
    body(
      api.GET('/sessions/{id}/changes', {
        signal,
        params: { path: { id: session.id }, query: turn === undefined ? {} : { turn } },
      }),
    ),
  );
  // What the agent changed is known when its turn is done.
  const before = useRef(session.status);
  useEffect(() => {
    if (before.current !== session.status) reload();
    before.current = session.status;
    // oxlint-disable-next-line react-hooks/exhaustive-deps
  }, [session.status]);
  const numbers = Array.from({ length: session.turn_count }, (_, index) => index + 1);
  return (
    <div class="scroll changes" tabIndex={0} role="region" aria-label="Changes">
      <p class="toolbar padded">
        <label for="changes-of" class="quiet">
          Compared with the clone:
        </label>
        <select
          id="changes-of"
          value={turn ?? ''}
          onChange={(event) => navigate(props.addressOf(event.currentTarget.value))}
        >
          <option value="">Now</option>
          {numbers.map((number) => (
            <option key={number} value={number}>
              At the end of turn {number}
            </option>
          ))}
        </select>
        <button type="button" class="small" onClick={reload}>
          Refresh
        </button>
      </p>
      {error && <ErrorBox error={error} retry={reload} />}
      {error && turn === undefined && (
        <p class="padded quiet">
          The changes at the end of each turn are kept: choose a turn above.
        </p>
      )}
      {!data && !error && <p class="quiet padded">Comparing the files…</p>}
      {data?.data.length === 0 && (
        <Empty title="This session has no repository">
          <p>Changes are shown for repositories that a session was started with:</p>
          <pre class="output">
            {`"resources": [{"type": "git_repository",
  "url": "https://github.com/octocat/Hello-World.git"}]`}
          </pre>
        </Empty>
      )}
      {data?.data.map((repository) => (
        <RepositoryView
          key={repository.mount_path}
          repository={repository}
          sessionId={session.id}
          turn={turn}
          // The patch is read again with the list.
          version={data}
        />
      ))}
    </div>
  );
}

/** What is read of a patch to be shown. */
interface Patch {
  text: string;
  cut: boolean;
}

async function readPatch(address: string, signal: AbortSignal): Promise<Patch> {
  const response = await fetch(address, { signal });
  if (!response.ok) throw await errorOf(response);
  const start = await startOf(response, MOST_BYTES);
  const cut = start.length === MOST_BYTES || response.headers.get('x-patch-truncated') === 'true';
  return { text: new TextDecoder().decode(start), cut };
}

function RepositoryView(props: {
  repository: Repository;
  sessionId: string;
  turn: number | undefined;
  version: object;
}) {
  const { repository, sessionId, turn, version } = props;
  const box = useRef<HTMLElement>(null);
  const query = new URLSearchParams({
    mount_path: repository.mount_path,
    ...(turn !== undefined && { turn: String(turn) }),
  }).toString();
  const address = `${API_ROOT}/sessions/${sessionId}/changes/patch?${query}`;
  const { files } = repository;
  const { data, error, reload } = useLoaded(files.length > 0 ? address : undefined, (signal) =>
    readPatch(address, signal),
  );
  const first = useRef(version);
  useEffect(() => {
    if (first.current !== version) reload();
    first.current = version;
    // oxlint-disable-next-line react-hooks/exhaustive-deps
  }, [version]);
  const jump = (path: string): void => {
    for (const figure of box.current?.querySelectorAll<HTMLElement>('figure') ?? []) {
      if (figure.dataset['path'] === path) figure.scrollIntoView({ block: 'start' });
    }
  };
  const sum = (of: 'additions' | 'deletions'): number =>
    files.reduce((total, file) => total + (file[of] ?? 0), 0);
  return (
    <section class="repository" ref={box} aria-label={literal(repository.mount_path)}>
      <div class="toolbar">
        <h3 class="grow">
          {literal(repository.mount_path)}{' '}
          {repository.base_sha !== null && (
            <span class="quiet" title={`from ${repository.base_sha}`}>
              {shortId(repository.base_sha)} … {shortId(repository.head_sha ?? '')}
            </span>
          )}
        </h3>
        {files.length > 0 && (
          <>
            <Copy
              text={`curl -H "Authorization: Bearer $TOKEN" '${address}' | git apply`}
              label="Copy as curl"
              title="Copy the command that applies these changes to a clone"
            />
            <a class="button small" href={address} download="changes.patch">
              Download the patch
            </a>
          </>
        )}
      </div>
      {files.length === 0 ? (
        <p class="quiet">Nothing has changed.</p>
      ) : (
        <>
          <p class="quiet">
            {count(files.length)} {files.length === 1 ? 'file' : 'files'} changed,{' '}
            <span class="good">+{count(sum('additions'))}</span>{' '}
            <span class="bad">−{count(sum('deletions'))}</span>
          </p>
          <ul class="changed-files">
            {files.map((file) => (
              <li key={file.path}>
                <button type="button" class="plain" onClick={() => jump(file.path)}>
                  <abbr title={file.status.replace('_', ' ')}>{SIGNS[file.status]}</abbr>
                  <code>
                    {file.previous_path !== null && `${literal(file.previous_path)} → `}
                    {literal(file.path)}
                  </code>
                  {file.additions === null ? (
                    <span class="quiet">binary</span>
                  ) : (
                    <span class="number">
                      <span class="good">+{file.additions}</span>{' '}
                      <span class="bad">−{file.deletions ?? 0}</span>
                    </span>
                  )}
                </button>
              </li>
            ))}
          </ul>
        </>
      )}
      {error && <ErrorBox error={error} retry={reload} />}
      {files.length > 0 && !data && !error && <p class="quiet">Reading the patch…</p>}
      {data?.cut && (
        <p class="quiet">Only the start of the patch is shown here. Download it for the rest.</p>
      )}
      {data && (
        <Suspense fallback={<p class="quiet">Loading the diff viewer…</p>}>
          <Diff edits={[{ path: repository.mount_path, patch: data.text }]} />
        </Suspense>
      )}
    </section>
  );
}
