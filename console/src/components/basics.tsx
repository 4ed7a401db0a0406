import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ApiError, Session } from '../api/client.js';
import { ago, duration, exact, shortId } from '../lib/format.js';
import { useNow } from '../lib/hooks.js';

const SIGNS: Readonly<Record<Session['status'], string>> = {
  pending: '◌',
  running: '▶',
  completed: '✓',
  failed: '✕',
  terminated: '■',
};

/** A status as a sign, a word and a colour. */
export function Status({ status }: { status: Session['status'] }) {
  return (
    <span class={`status ${status}`}>
      <span aria-hidden="true">{SIGNS[status]}</span> {status}
    </span>
  );
}

/** `3 min. ago`, with the exact time on hover. */
export function Time({ at }: { at: string }) {
  const time = Date.parse(at);
  const now = useNow(true, Date.now() - time < 60_000 ? 1_000 : 30_000);
  return (
    <time dateTime={at} title={exact(time)}>
      {ago(time, now)}
    </time>
  );
}

/** How long something took, or takes: then it ticks. */
export function Elapsed({ from, to }: { from: string; to?: string | null }) {
  const now = useNow(!to);
  const ms = (to ? Date.parse(to) : now) - Date.parse(from);
  return <span class="number">{to ? duration(ms) : duration(Math.floor(ms / 1000) * 1000)}</span>;
}

/** A button that copies a text and says so. */
export function Copy(props: {
  /** Long texts are made when the button is pressed, not each time that it is drawn. */
  text: string | (() => string);
  label: string;
  title?: string;
}) {
  const { text, label, title } = props;
  const [done, setDone] = useState<'copied' | 'failed'>();
  useEffect(() => {
    if (!done) return undefined;
    const timer = setTimeout(() => setDone(undefined), 1_500);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = (): void => {
    navigator.clipboard.writeText(typeof text === 'string' ? text : text()).then(
      () => setDone('copied'),
      () => setDone('failed'),
    );
  };
  return (
    <button type="button" class="plain small" onClick={copy} title={title ?? `Copy ${label}`}>
      <span aria-live="polite">
        {done === 'copied' ? 'Copied' : done === 'failed' ? 'Cannot copy' : label}
      </span>
    </button>
  );
}

/** A UUID: its first part, with the whole on hover and a button that copies it. */
export function Id({ id }: { id: string }) {
  return (
    <span class="id" title={id}>
      <Copy text={id} label={shortId(id)} title={`Copy ${id}`} />
    </span>
  );
}

/** An error of the service, in its own words. */
export function ErrorBox({
  error,
  retry,
}: {
  error: Pick<ApiError, 'message' | 'status' | 'requestId'>;
  retry?: () => void;
}) {
  return (
    <div class="error-box" role="alert">
      <p>{error.message}</p>
      <p class="quiet">
        {error.status > 0 && <>Status {error.status} </>}
        {error.requestId !== null && (
          <>
            · request <code>{error.requestId}</code>{' '}
            <Copy text={error.requestId} label="Copy" title="Copy the id of the request" />
          </>
        )}
        {retry && (
          <button type="button" class="small" onClick={retry}>
            Try again
          </button>
        )}
      </p>
    </div>
  );
}

/** What a list without items shows: why, and what fills it. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p>
        <strong>{title}</strong>
      </p>
      {children}
    </div>
  );
}

/** A button that is always there. While its action is refused, it says why: on hover, and when it is pressed. */
export function ActionButton(props: {
  label: string;
  /** Why it is not possible now. */
  refusal: string | undefined;
  onClick: () => void;
}) {
  const { label, refusal } = props;
  const [isExplained, setExplained] = useState(false);
  return (
    <>
      <button
        type="button"
        class="small"
        aria-disabled={refusal !== undefined}
        title={refusal}
        onClick={() => {
          setExplained(refusal !== undefined);
          if (refusal === undefined) props.onClick();
        }}
        onBlur={() => setExplained(false)}
      >
        {label}
      </button>
      {isExplained && refusal !== undefined && (
        <span class="notice" role="status">
          {refusal}.
        </span>
      )}
    </>
  );
}

/** Asks before something that cannot be undone. Escape and the backdrop cancel. */
export function Confirm(props: {
  title: string;
  children: ComponentChildren;
  action: string;
  danger?: boolean;
  /** There is nothing to cancel any more. */
  final?: boolean;
  onConfirm: () => void;
  onCancel: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby="confirm-title"
      onClose={props.onCancel}
      onClick={(event) => {
        if (event.target === dialog.current) props.onCancel();
      }}
    >
      <h2 id="confirm-title">{props.title}</h2>
      {props.children}
      <p class="actions">
        {!props.final && (
          <button type="button" onClick={props.onCancel}>
            Cancel
          </button>
        )}
        <button type="button" class={props.danger ? 'danger' : 'primary'} onClick={props.onConfirm}>
          {props.action}
        </button>
      </p>
    </dialog>
  );
}
