import { lazy, Suspense } from 'preact/compat';
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { ApiError } from '../api/client.js';
import { ErrorBox } from '../components/basics.js';
import { useLoaded } from '../lib/hooks.js';
import { ENVIRONMENTS } from './environments.js';
import {
  type Field,
  FormError,
  type Kind,
  type Resource,
  type ShownError,
  type Texts,
} from './kind.js';
import { differences } from './versions-view.js';

const Diff = lazy(() => import('../components/diff.js'));

const MOST = 1_000;

/** Creates a resource, or changes one from the version that the form was opened with. */
export function ResourceForm<T extends Resource>(props: {
  kind: Kind<T>;
  /** `undefined` for a new one. */
  base?: T;
  cancel: string;
  onSaved: (saved: T) => void;
}) {
  const { kind } = props;
  const [base, setBase] = useState(props.base);
  const [before, setBefore] = useState(() => props.base && kind.textsOf(props.base));
  const [texts, setTexts] = useState<Texts>(() => kind.textsOf(props.base));
  const [error, setError] = useState<ShownError>();
  const [newest, setNewest] = useState<T>();
  const [busy, setBusy] = useState(false);
  const { data: environments } = useLoaded('environments of a form', (signal) =>
    ENVIRONMENTS.list({ limit: MOST }, signal),
  );
  const fields = kind.fields({ environments: environments?.data ?? [] });

  const save = async (): Promise<void> => {
    if (busy) return;
    setError(undefined);
    setNewest(undefined);
    setBusy(true);
    try {
      const body = kind.bodyOf(texts, before);
      props.onSaved(
        await (base ? kind.update(base.id, { ...body, version: base.version }) : kind.create(body)),
      );
    } catch (reason) {
      if (!(reason instanceof ApiError || reason instanceof FormError)) throw reason;
      setError(reason);
      setBusy(false);
      if (base && (reason.status === 409 || reason.status === 412)) {
        kind.read(base.id).then(setNewest, () => undefined);
      }
    }
  };
  const start = (from: T, keep: boolean): void => {
    setBase(from);
    setError(undefined);
    setNewest(undefined);
    if (keep) return;
    setBefore(kind.textsOf(from));
    setTexts(kind.textsOf(from));
  };
  return (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
      onKeyDown={(event) => {
        if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void save();
      }}
    >
      {fields
        .filter(({ when }) => when?.(texts) ?? true)
        .map((field) => (
          <FieldRow
            key={field.name}
            field={field}
            texts={texts}
            set={(value) => setTexts({ ...texts, [field.name]: value })}
          />
        ))}
      {error && <ErrorBox error={error} />}
      {base && newest && newest.version !== base.version && (
        <Conflict kind={kind} base={base} newest={newest} start={start} />
      )}
      <p class="actions">
        <Link href={props.cancel} class="button">
          Cancel
        </Link>
        <button type="submit" class="primary" disabled={busy} title="Ctrl+Enter">
          {busy
            ? 'Saving…'
            : base
              ? `Save as version ${base.version + 1}`
              : `Create the ${kind.singular}`}
        </button>
      </p>
    </form>
  );
}

/** Somebody else was faster: what they changed, and the two ways to go on. */
function Conflict<T extends Resource>(props: {
  kind: Kind<T>;
  base: T;
  newest: T;
  start: (from: T, keep: boolean) => void;
}) {
  const { kind, base, newest } = props;
  return (
    <div class="conflict" role="status">
      <p>
        <strong>
          Version {newest.version} was saved after you opened version {base.version}.
        </strong>{' '}
        Nothing of yours is lost. This is what changed:
      </p>
      <Suspense fallback={<p class="quiet">Loading the diff viewer…</p>}>
        <Diff edits={differences(kind, base, newest)} />
      </Suspense>
      <p class="actions">
        <button type="button" onClick={() => props.start(newest, false)}>
          Discard mine, edit version {newest.version}
        </button>
        <button type="button" onClick={() => props.start(newest, true)}>
          Keep mine, on top of version {newest.version}
        </button>
      </p>
    </div>
  );
}

function FieldRow(props: { field: Field; texts: Texts; set: (value: string) => void }) {
  const { field, texts, set } = props;
  const id = `field-${field.name}`;
  const value = texts[field.name] ?? '';
  const hint = field.hint === undefined ? undefined : `${id}-hint`;
  if (field.control === 'box') {
    return (
      <label class="box">
        <input
          type="checkbox"
          checked={value === 'true'}
          onChange={(event) => set(event.currentTarget.checked ? 'true' : '')}
        />
        {field.label}
      </label>
    );
  }
  const known = field.options?.some(([option]) => option === value) ?? true;
  return (
    <>
      <label for={id}>
        {field.label}
        {hint !== undefined && (
          <span class="quiet" id={hint}>
            {' '}
            {field.hint}
          </span>
        )}
      </label>
      {field.control === 'select' && (
        <select id={id} value={value} onChange={(event) => set(event.currentTarget.value)}>
          {!known && <option value={value}>{value}</option>}
          {field.options?.map(([option, label]) => (
            <option key={option} value={option}>
              {label}
            </option>
          ))}
        </select>
      )}
      {field.control === 'text' && (
        <input
          id={id}
          value={value}
          required={field.required}
          placeholder={field.placeholder?.(texts)}
          autoComplete="off"
          aria-describedby={hint}
          onInput={(event) => set(event.currentTarget.value)}
        />
      )}
      {field.control === 'area' && (
        <textarea
          id={id}
          rows={field.rows}
          value={value}
          spellcheck={false}
          aria-describedby={hint}
          onInput={(event) => set(event.currentTarget.value)}
        />
      )}
    </>
  );
}
