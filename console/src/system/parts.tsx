import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { ApiError } from '../api/client.js';
import { ActionButton, Confirm, ErrorBox } from '../components/basics.js';
import { type Column, DataTable } from '../components/data-table.js';
import { literal } from '../lib/untrusted.js';
import { Listing } from '../components/list-page.js';
import { type Identified, type Page, type Pages, usePages } from '../lib/pages.js';

const REFRESH_MS = 5_000;

/** A list of the service for operators. @param key what is loaded */
export const useSystemList = <T extends Identified>(
  key: string,
  read: (limit: number, signal: AbortSignal) => Promise<Page<T>>,
): Pages<T> => usePages(key, read, REFRESH_MS);

/** A list as a table. */
export function SystemTable<T extends Identified>(props: {
  pages: Pages<T>;
  /** In the plural, such as `workers`. */
  what: string;
  empty: ComponentChildren;
  columns: readonly Column<T>[];
}) {
  const { pages, what, columns } = props;
  const items = pages.data?.data ?? [];
  return (
    <Listing pages={pages} what={what} items={items} empty={props.empty}>
      <div class="scroll-x" tabIndex={0} role="region" aria-label={`Table of ${what}`}>
        <DataTable columns={columns} items={items} />
      </div>
    </Listing>
  );
}

/** The host that a worker or sandbox is bound to. */
export function Host({ name }: { name: string | null }) {
  if (name === null) return <span class="quiet">any</span>;
  return (
    <span class="host" title={name}>
      {literal(name)}
    </span>
  );
}

/** A button for an action that cannot be undone; it asks first, and shows why the service refuses. */
export function AskingButton(props: {
  label: string;
  title: string;
  /** What will happen. */
  children: ComponentChildren;
  /** Why it is not possible now. */
  refusal?: string | undefined;
  run: () => Promise<unknown>;
  onDone: () => void;
}) {
  const [asking, setAsking] = useState(false);
  const [error, setError] = useState<ApiError>();
  const act = async (): Promise<void> => {
    setError(undefined);
    try {
      await props.run();
      setAsking(false);
    } catch (reason) {
      setError(reason as ApiError);
    }
    // A refusal may mean that the list is out of date.
    props.onDone();
  };
  return (
    <>
      <ActionButton
        label={props.label}
        refusal={props.refusal}
        onClick={() => {
          setError(undefined);
          setAsking(true);
        }}
      />
      {asking && (
        <Confirm
          title={props.title}
          action={props.label}
          danger
          onConfirm={() => void act()}
          onCancel={() => setAsking(false)}
        >
          {props.children}
          {error && <ErrorBox error={error} />}
        </Confirm>
      )}
    </>
  );
}
