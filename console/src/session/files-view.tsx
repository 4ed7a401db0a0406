import { useEffect, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import {
  API_ROOT,
  api,
  type ApiError,
  body,
  errorOf,
  type Schemas,
  startOf,
} from '../api/client.js';
import { Copy, Empty, ErrorBox, Time } from '../components/basics.js';
import { bytes } from '../lib/format.js';
import { useLoaded } from '../lib/hooks.js';
import { literal } from '../lib/untrusted.js';

type File = Schemas['SessionFile'];

const PAGE = 500;
/** The most of a file that is read to be shown. The rest is for the download. */
const MOST_BYTES = 512 * 1024;
const SIGNS = { directory: '▸', file: '', symlink: '↪', other: '?' } as const;

interface FilesProps {
  sessionId: string;
  /** The file that is open; empty for none. */
  file: string;
  /** The page's address with another file open. */
  addressOf: (file: string) => string;
}

/** The files of a session's sandbox: a tree whose folders load when they are opened, and the file that is chosen. */
export function FilesView(props: FilesProps) {
  const [round, setRound] = useState(0);
  const query = (path: string): string => new URLSearchParams({ path }).toString();
  const files = `${API_ROOT}/sessions/${props.sessionId}/files`;
  return (
    <div class={`files ${props.file === '' ? '' : 'with-file'}`}>
      <nav class="tree" aria-label="Files">
        <p class="toolbar">
          <strong class="grow">Workspace</strong>
          <a class="button small" href={`${files}/archive?format=tar.gz`} download>
            tar.gz
          </a>
          <a class="button small" href={`${files}/archive?format=zip`} download>
            zip
          </a>
          <button type="button" class="small" onClick={() => setRound(round + 1)}>
            Refresh
          </button>
        </p>
        <Folder key={round} {...props} path="" depth={0} />
      </nav>
      {props.file === '' ? (
        <p class="quiet centred file-view">Choose a file to read it here.</p>
      ) : (
        <FileView
          key={`${round} ${props.file}`}
          path={props.file}
          close={props.addressOf('')}
          address={`${files}/content?${query(props.file)}`}
        />
      )}
    </div>
  );
}

function Folder(props: FilesProps & { path: string; depth: number }) {
  const { sessionId, path, depth } = props;
  const [more, setMore] = useState<readonly File[]>([]);
  const [hasMore, setHasMore] = useState<boolean>();
  const [failed, setFailed] = useState<ApiError>();
  const page = (after?: string, signal?: AbortSignal) =>
    body(
      api.GET('/sessions/{id}/files', {
        ...(signal && { signal }),
        params: {
          path: { id: sessionId },
          query: {
            limit: PAGE,
            ...(path !== '' && { path }),
            ...(after !== undefined && { after }),
          },
        },
      }),
    );
  const { data, error, reload } = useLoaded(path, (signal) => page(undefined, signal));
  if (error) return <ErrorBox error={error} retry={reload} />;
  if (!data) return <p class="quiet padded">Reading the folder…</p>;
  const entries = [...data.data, ...more];
  const last = entries.at(-1);
  const load = (): void => {
    if (!last) return;
    page(last.path).then(
      (next) => {
        setMore([...more, ...next.data]);
        setHasMore(next.has_more);
        setFailed(undefined);
      },
      (reason: unknown) => setFailed(reason as ApiError),
    );
  };
  if (entries.length === 0) {
    return depth === 0 ? (
      <Empty title="The workspace is empty">
        <p class="quiet">Files that the agent writes appear here.</p>
      </Empty>
    ) : (
      <p class="quiet tree-note">empty</p>
    );
  }
  return (
    <ul>
      {entries.map((entry) => (
        <Entry key={entry.path} {...props} entry={entry} />
      ))}
      {(hasMore ?? data.has_more) && (
        <li>
          <button type="button" class="small" onClick={load}>
            Load more
          </button>
        </li>
      )}
      {failed && <ErrorBox error={failed} />}
    </ul>
  );
}

function Entry(props: FilesProps & { depth: number; entry: File }) {
  const { entry, file, depth } = props;
  const [open, setOpen] = useState(file.startsWith(`${entry.path}/`));
  const name = literal(entry.path.slice(entry.path.lastIndexOf('/') + 1));
  if (entry.type === 'directory') {
    return (
      <li>
        <button
          type="button"
          class="tree-entry"
          aria-expanded={open}
          onClick={() => setOpen(!open)}
        >
          <span class="chevron" aria-hidden="true">
            {open ? '▾' : SIGNS.directory}
          </span>
          <span class="tree-name">{name}</span>
        </button>
        {open && <Folder {...props} path={entry.path} depth={depth + 1} />}
      </li>
    );
  }
  return (
    <li>
      <Link
        href={props.addressOf(entry.path)}
        class="tree-entry"
        aria-current={entry.path === file ? 'page' : undefined}
      >
        <span class="chevron" aria-hidden="true">
          {SIGNS[entry.type]}
        </span>
        <span class="tree-name">{name}</span>
        {entry.type === 'file' && <span class="quiet number">{bytes(entry.size)}</span>}
      </Link>
    </li>
  );
}

/** The start of a file, as far as it is shown. */
interface Content {
  /** `undefined` for a file that is no text. */
  text: string | undefined;
  size: number;
  cut: boolean;
  modified: string | null;
}

async function readStart(address: string, signal: AbortSignal): Promise<Content> {
  const response = await fetch(address, { signal });
  if (!response.ok) throw await errorOf(response);
  const start = await startOf(response, MOST_BYTES);
  const size = Number(response.headers.get('content-length') ?? start.length);
  return {
    text: start.includes(0) ? undefined : new TextDecoder().decode(start),
    size,
    cut: size > start.length,
    modified: response.headers.get('last-modified'),
  };
}

function FileView({ path, address, close }: { path: string; address: string; close: string }) {
  const { data, error, reload } = useLoaded(address, (signal) => readStart(address, signal));
  useEffect(() => {
    document.querySelector('.tree [aria-current]')?.scrollIntoView({ block: 'nearest' });
  }, [path]);
  return (
    <section class="file-view" aria-label="File">
      <p class="toolbar">
        <Link href={close} class="back narrow-only" aria-label="Back to the files">
          ←
        </Link>
        <code class="grow file-path">{literal(path)}</code>
        {data && <span class="quiet number">{bytes(data.size)}</span>}
        {data?.modified && <Time at={data.modified} />}
        {data?.text !== undefined && <Copy text={data.text} label="Copy" title="Copy the text" />}
        <a class="button small" href={address} download>
          Download
        </a>
      </p>
      {error && <ErrorBox error={error} retry={reload} />}
      {!data && !error && <p class="quiet padded">Reading the file…</p>}
      {data && <FileText content={data} />}
    </section>
  );
}

function FileText({ content: { text, size, cut } }: { content: Content }) {
  if (size === 0) return <p class="quiet centred">The file is empty.</p>;
  if (text === undefined) {
    return <p class="quiet centred">This is no text. Download the file to open it.</p>;
  }
  const lines = text.split('\n').length - (text.endsWith('\n') ? 1 : 0);
  return (
    <div class="file-text" tabIndex={0} role="region" aria-label="Content of the file">
      {cut && (
        <p class="quiet padded">
          Only the first {bytes(MOST_BYTES)} are shown. Download the file for the rest.
        </p>
      )}
      <div class="numbered">
        <pre class="line-number" aria-hidden="true">
          {Array.from({ length: lines }, (_, index) => index + 1).join('\n')}
        </pre>
        <pre class="code">{literal(text)}</pre>
      </div>
    </div>
  );
}
